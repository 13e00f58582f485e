"""Kernels compiled for GPUs that are not here, by the launches that the library itself makes."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
ASSEMBLERS = sorted(TOOLS.glob("ptxas*"), key=lambda path: len(path.name))
needs_compiler = pytest.mark.skipif(
    bool(triton.knobs.runtime.interpret) or not ASSEMBLERS,
    reason="this Triton has no compiler for NVIDIA's GPUs",
)

SHARED = {80: 164 * 1024, 90: 228 * 1024}
"""Bytes of shared memory of a multiprocessor; each resident tile takes 1 KiB more than it asks."""


@dataclass(frozen=True)
class Compiled:
    """What the assembler reports of one launch.

    Attributes:
        name: of the kernel.
        registers: a thread.
        spilled: bytes a thread, stores and loads.
        shared: bytes of shared memory a program.
        warps: of a program.
        grid: programs.
        ptx: its text.
    """

    name: str
    registers: int
    spilled: int
    shared: int
    warps: int
    grid: tuple[int, ...]
    ptx: str

    def __repr__(self) -> str:
        return (
            f"{self.name}: {self.registers} registers, {self.spilled} bytes spilled, "
            f"{self.shared} bytes shared"
        )


class _Driver:
    """A GPU that nobody has: kernels are compiled for it and not launched."""

    def __init__(self, arch: int) -> None:
        self.arch = arch

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> tuple[str, int]:
        return "ahead of time", self.arch

    def get_current_stream(self, device: Any) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


@contextmanager
def compiling(arch: int) -> Iterator[list[Compiled]]:
    """What is launched meanwhile, compiled for `sm_{arch}`; results of launches stay unwritten."""
    launches: list[Compiled] = []
    active, run = triton.runtime.driver._active, JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        made = run(self, *args, grid=grid, warmup=True, **kwargs)
        launches.append(replace(_report(made.asm["ptx"], arch), name=made.name,
            shared=made.metadata.shared, warps=made.metadata.num_warps,
            grid=tuple(grid) if isinstance(grid, (tuple, list)) else (),
        ))  # fmt: skip

    triton.runtime.driver.set_active(_Driver(arch))
    JITFunction.run = compile_only
    try:
        yield launches
    finally:
        JITFunction.run = run
        triton.runtime.driver._active = active


@lru_cache
def _report(ptx: str, arch: int) -> Compiled:
    with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
        file.write(ptx.encode())
        file.flush()
        target = f"-arch=sm_{arch}{'a' if arch >= 90 else ''}"
        command = [ASSEMBLERS[-1], "-v", target, file.name, "-o", "/dev/null"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = int(re.findall(r"Used (\d+) registers", text)[0])
    spilled = sum(int(count) for count in re.findall(r"(\d+) bytes spill", text))
    # Files follow the code, which may be another folder's where one was compiled before.
    code = ptx.partition("\t.file\t")[0]
    return Compiled("", registers, spilled, 0, 0, (), code)
