"""What every section of a run is handed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .models import BuiltModels
from .settings import GpuSettings
from .timing import Deadline, DeviceClock


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
    keep: Callable[[], None]
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


Section = Callable[[GpuBench, dict[str, Any]], None]
"""Measures into the dictionary that it is given, so that whatever ends it leaves what it has."""


def measure_bandwidth(bench: GpuBench, nbytes: int) -> dict[str, Any]:
    """Bytes a second of a copy within the device's memory; each byte is read and written.

    Args:
        nbytes: of the source; several times the L2 cache.
    """
    source = torch.ones(nbytes // 2, dtype=torch.bfloat16, device=bench.device)
    target = torch.empty_like(source)
    found = bench.clock.interleaved({"copy": lambda: target.copy_(source)}, 20, warm_ups=3)["copy"]
    if isinstance(found, str):
        raise RuntimeError(found)
    bench.bandwidth = 2 * source.nbytes / found.seconds
    return {"bytes": 2 * source.nbytes, **found.as_dict(), "bytes_per_second": bench.bandwidth}
