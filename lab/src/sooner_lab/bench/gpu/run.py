"""The whole of `sooner bench gpu`, section by section, each kept as it ends."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from sooner.checks import check_number
from sooner.errors import SoonerError
from sooner.provenance import revision

from ...provenance import provenance
from ..run import Keep, Recorder, earlier_runs
from .bench import GpuBench, Section, measure_bandwidth
from .goals import goals
from .models import BuiltModels
from .settings import GpuSettings
from .timing import Deadline, DeviceClock, report

COPY = 1 << 30
"""Bytes of the tensor whose copy gives the bandwidth; on CPUs a 64th of them."""

DONE, CUT, SKIPPED, FAILED, INTERRUPTED = "done", "cut", "skipped", "failed", "interrupted"


def run(
    settings: GpuSettings,
    progress: Callable[[str], None] = print,
    keep: Keep | None = None,
    earlier: dict[str, Any] | None = None,
    stated: str | None = None,
) -> dict[str, Any]:
    """Measure every section that fits into the budget.

    Args:
        keep: handed the result as far as it is, after every section and within them.
        earlier: the result of a run whose other sections are kept.
        stated: revision of a tree without a repository, as its copier states it.

    Returns:
        `bandwidth` of a copy; `sections` by name, each with `status` (`done`; `cut` by the budget,
        with what is missing; `skipped` for it, with the `reason`; `failed`, with the `error`;
        `interrupted`), `section_seconds`, and on GPUs `peak_bytes` and `reserved_bytes`; `goals`,
        `provenance`, and `is_complete`: every section that was asked for is done.

    Raises:
        SoonerError: a budget that is none, or no CUDA device.
    """
    end = time.monotonic() + settings.budget
    _check(settings)
    device = torch.device(settings.device)
    dtype = getattr(torch, settings.dtype)
    recorder = Recorder("gpu", settings, goals, keep, model=settings.target)
    result = recorder.result
    result |= {"bandwidth": {}, "sections": {}, "is_complete": False}
    result["provenance"] = _provenance(settings, device, stated)
    if earlier is not None:  # other sections stay, and say whose they are
        parts = [name for name in earlier["sections"] if name not in settings.sections]
        result["sections"] = {name: earlier["sections"][name] for name in parts}
        result["kept"] = earlier_runs(earlier, parts)
    models = BuiltModels(device, dtype, settings.seed)
    bench = GpuBench(settings, DeviceClock(device), models, progress, recorder.add, Deadline(0))
    progress("bandwidth of a copy")
    nbytes = COPY if bench.clock.is_cuda else COPY // 64
    result["bandwidth"] = measure_bandwidth(bench, nbytes)
    for name in settings.sections:
        out: dict[str, Any] = {}
        result["sections"][name] = out
        gc.collect()  # models and caches that the section before leaves in cycles
        bench.clock.free()
        try:
            _measure(bench, name, out, end - time.monotonic())
        except KeyboardInterrupt:
            out["status"] = INTERRUPTED
            raise
        finally:
            recorder.add()
        progress(f"{name}: {out['status']}{_why(out)}")
    ends = [result["sections"][name]["status"] for name in settings.sections]
    return recorder.add(is_complete=set(ends) <= {DONE})


def section(name: str) -> Section:
    """The function that measures a section; its module is loaded when it is asked for."""
    function = name.replace("-", "_")
    measure: Section = getattr(import_module(f".{name.split('-')[0]}", __package__), function)
    return measure


def _check(settings: GpuSettings) -> None:
    check_number("--budget", settings.budget, above=True)
    if settings.device != "cpu" and not torch.cuda.is_available():
        raise SoonerError(
            f"no CUDA device for --device {settings.device}; `--device cpu --tiny` goes through "
            "every section without one, and measures nothing"
        )


def _measure(bench: GpuBench, name: str, out: dict[str, Any], left: float) -> None:
    """One section; nothing but an interruption leaves it."""
    cost = bench.settings.costs[name]
    if left <= 0 or left < cost / 2:
        out["status"] = SKIPPED
        out["reason"] = f"takes about {cost:.0f} s, and {max(left, 0):.0f} s of the budget are left"
        return
    bench.deadline = Deadline(min(left, 2 * cost) if cost else left)
    start = time.monotonic()
    if bench.clock.is_cuda:
        torch.cuda.reset_peak_memory_stats(bench.device)
    try:
        section(name)(bench, out)
        bench.clock.wait()
        out["status"] = CUT if "cut" in out else DONE
    except Exception as error:
        out["status"], out["error"] = FAILED, report(error)
        out["traceback"] = traceback.format_exc().splitlines()[-12:]
        if bench.clock.is_cuda:
            bench.models.drop()
    out["section_seconds"] = time.monotonic() - start
    if bench.clock.is_cuda:
        out["peak_bytes"] = torch.cuda.max_memory_allocated(bench.device)
        out["reserved_bytes"] = torch.cuda.max_memory_reserved(bench.device)


def _why(out: dict[str, Any]) -> str:
    why = out.get("error") or out.get("reason") or ", ".join(out.get("cut", []))
    return f" ({why})" if why else ""


def _provenance(settings: GpuSettings, device: torch.device, stated: str | None) -> dict[str, Any]:
    """As of every bench, and what the GPU is."""
    revision()
    origin = provenance(settings.device, settings.dtype, settings.seed)
    if stated is not None and origin["git"] is None:
        origin |= {"git": stated, "git_stated": True}
    if sys.argv[0].endswith("gpu.py"):
        origin["argv"] = ["python", "-m", "sooner_lab.gpu", *sys.argv[1:]]
    origin["versions"]["triton"] = _triton()
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        origin["gpu"] = {
            "name": about.name,
            "capability": f"{about.major}.{about.minor}",
            "memory": about.total_memory,
            "multiprocessors": about.multi_processor_count,
            "cuda": torch.version.cuda,
            "driver": _driver(),
        }
    return origin


def _triton() -> str | None:
    try:
        return str(import_module("triton").__version__)
    except ImportError:
        return None


def _driver() -> str | None:
    """The driver's version, if `nvidia-smi` is there to tell it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split("\n")[0].strip() or None
