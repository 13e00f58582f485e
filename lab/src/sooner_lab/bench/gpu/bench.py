"""What every section of a run is handed."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .models import BuiltModels
from .settings import GpuSettings
from .timing import Deadline, DeviceClock, report


@dataclass
class GpuBench:
    """One run.

    Attributes:
        bandwidth: bytes a second that a large copy reads and writes.
        progress: told what is being done.
        keep: writes the result as far as it is.
        deadline: of the section that runs.
    """

    settings: GpuSettings
    clock: DeviceClock
    models: BuiltModels
    progress: Callable[[str], None]
    keep: Callable[[], object]
    deadline: Deadline
    bandwidth: float = 0.0

    @property
    def device(self) -> torch.device:
        return self.clock.device

    @property
    def dtype(self) -> torch.dtype:
        return self.models.dtype

    def is_late(self, out: dict[str, Any], what: str) -> bool:
        """Whether the section's time is over; then `out["cut"]` names what is left out."""
        if self.deadline.left > 0:
            return False
        out.setdefault("cut", []).append(what)
        return True

    def failed(self, error: Exception) -> dict[str, Any]:
        """Returns what stands in the place of figures: `missing`, the error in one line, and the
        end of its `traceback`. Memory that it has held is given back."""
        lines = traceback.format_exception(error)
        self.clock.free()
        return {"missing": report(error), "traceback": "".join(lines).splitlines()[-12:]}


DATA_SHEETS = {
    "B200": 8.0e12, "H200": 4.8e12, "GH200": 4.0e12, "H100 NVL": 3.9e12, "H100 PCIe": 2.0e12,
    "H100": 3.35e12, "A100-SXM4-40GB": 1.555e12, "A100-PCIE-40GB": 1.555e12, "A100": 2.0e12,
    "L40S": 0.864e12, "L40": 0.864e12, "L4": 0.3e12, "A10": 0.6e12, "RTX 6000 Ada": 0.96e12,
    "RTX 5090": 1.79e12, "RTX 4090": 1.008e12, "RTX 3090": 0.936e12,
}  # fmt: skip
"""Bytes a second of memory by the data sheets, by a part of the card's name; longer parts first."""


def data_sheet(device: str) -> float | None:
    """Bytes a second that a card's data sheet gives its memory; `None` for an unknown card."""
    for part in sorted(DATA_SHEETS, key=len, reverse=True):
        if part in device:
            return DATA_SHEETS[part]
    return None


Section = Callable[[GpuBench, dict[str, Any]], None]
"""Measures into the dictionary that it is given, so that whatever ends it leaves what it has."""


def measure_bandwidth(bench: GpuBench, nbytes: int) -> dict[str, Any]:
    """Bytes a second of a copy within the device's memory; each byte is read and written.

    Args:
        nbytes: of the source; several times the L2 cache.
    """
    source = torch.ones(nbytes // 2, dtype=torch.bfloat16, device=bench.device)
    target = torch.empty_like(source)
    timing = bench.clock.interleaved({"copy": lambda: target.copy_(source)}, 20, warm_ups=3)["copy"]
    if "missing" in timing:
        raise RuntimeError(timing["missing"])
    bench.bandwidth = 2 * source.nbytes / timing["seconds"]
    name = torch.cuda.get_device_name(bench.device) if bench.clock.is_cuda else "cpu"
    sheet, figures = data_sheet(name), {"bytes_per_second": bench.bandwidth}
    if sheet is not None:
        figures |= {"data_sheet": sheet, "share_of_data_sheet": bench.bandwidth / sheet}
    return {"bytes": 2 * source.nbytes, **timing, **figures}
