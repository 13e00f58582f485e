"""The kernel compiled for GPUs that are not here: registers, spills, shared memory."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from sooner.attention import kernel  # noqa: E402

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
ASSEMBLERS = sorted(TOOLS.glob("ptxas*"), key=lambda path: len(path.name))
pytestmark = pytest.mark.skipif(
    kernel.INTERPRETED or not ASSEMBLERS, reason="this Triton has no compiler for NVIDIA's GPUs"
)

POINTERS = {
    **dict.fromkeys(("query", "keys", "values", "output"), "*bf16"),
    **dict.fromkeys(("parts", "lse", "sinks"), "*fp32"),
    **dict.fromkeys(("lengths", "sizes", "depths"), "*i64"),
    **dict.fromkeys(("ancestors", "page_table"), "*i32"),
}
STRIDES = {f"{store}_{name}" for store in "qkv" for name in ("row", "head", "entry", "slot")}
SIXTEENS = POINTERS.keys() | STRIDES | {"capacity"}
"""What a launch finds divisible by 16, and tells the compiler."""

PLAIN = dict.fromkeys(("SIZED", "TREE", "DEEP", "PAGED", "WINDOW", "CHUNK", "SOFTCAP"), False)
EVERYTHING = dict.fromkeys(PLAIN, True)
SHARED = {80: 164 * 1024, 90: 228 * 1024}
"""Bytes of shared memory of a multiprocessor; each resident tile takes 1 KiB more than it asks."""


def compiled(function: Any, constants: dict[str, Any], arch: int, **options: int) -> dict[str, int]:
    """Registers a thread, bytes spilled a thread and bytes of shared memory a tile."""
    signature = {
        name: POINTERS.get(name, "fp32" if name in ("scale", "softcap") else "i32")
        for name in function.arg_names
        if name not in constants
    }
    attributes = {
        (number,): [["tt.divisibility", 16]]
        for number, name in enumerate(function.arg_names)
        if name in SIXTEENS
    }
    source = ASTSource(
        function, signature | dict.fromkeys(constants, "constexpr"), constants, attributes
    )
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
        file.write(made.asm["ptx"].encode())
        file.flush()
        target = f"-arch=sm_{arch}{'a' if arch >= 90 else ''}"
        command = [ASSEMBLERS[-1], "-v", target, file.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return {
        "registers": int(re.findall(r"Used (\d+) registers", said)[0]),
        "spilled": sum(int(count) for count in re.findall(r"(\d+) bytes spill", said)),
        "shared": made.metadata.shared,
    }


TILES = [
    *((128, queries, flags) for queries in (7, 28, 119) for flags in (PLAIN, EVERYTHING)),
    (64, 119, EVERYTHING),
    (96, 119, EVERYTHING),
    (256, 16, EVERYTHING),
    (256, 119, EVERYTHING),
]


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(("dim", "queries", "flags"), TILES)
def test_tiles_spill_nothing_and_two_fit_a_multiprocessor(
    dim: int, queries: int, flags: dict[str, bool], arch: int
) -> None:
    config = kernel.config_for(queries, dim, torch.bfloat16)
    padded = triton.next_power_of_2(dim)
    constants = {
        "GROUP": 7, "DIM": dim, "PADDED": padded, "WIDTH": kernel.width_of(padded),
        "ROWS": config.rows, "KEYS": config.keys, "MIXED": min(config.keys, 32), **flags,
    }  # fmt: skip
    found = compiled(
        kernel.split_kernel, constants, arch, num_warps=config.warps, num_stages=config.stages
    )
    assert found["spilled"] == 0, found
    assert found["shared"] <= SHARED[arch] - 1024, found
    if dim <= 128:
        assert found["registers"] * config.warps * 32 <= 32768, found
        assert found["shared"] + 1024 <= SHARED[arch] / 2, found


@pytest.mark.parametrize("arch", [80, 90])
def test_the_merge_spills_nothing(arch: int) -> None:
    constants = {"GROUP": 7, "DIM": 128, "PADDED": 128, "SPLITS": 64, "SINKS": True}
    assert compiled(kernel.merge_kernel, constants, arch, num_warps=1)["spilled"] == 0
