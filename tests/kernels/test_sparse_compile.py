"""Sparse kernels compiled for GPUs that are not here: registers, spills, launches."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from ahead_of_time import SHARED, Compiled, compiling, needs_compiler
from sooner.sparse.attention import Partial, States
from sooner.sparse.attention.triton import TritonBackend
from sooner.sparse.kernels import dense
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import BlockIndex, GridIndex, LineIndex
from sooner.sparse.plane import Plane, PlaneStack, plane_of, whole
from sooner.sparse.probe import BlockCells

pytestmark = needs_compiler

HEADS = 4
GRID = [(5, 2, 1, 1, 1, 0, 1), (7, 6, 0, 1, 0, 0, 1), (5, 0, 0, 0, 1, 0, 5), (2, 1, 1, 1, 1, 70, 9)]
"""Stride, phase, horizontal, vertical and slash lines, sink and nearest keys of a head."""
FLAGS = range(2, 5)
PLANES = {
    "whole": whole,
    "query": partial(plane_of, region="text"),
    "pair": partial(plane_of, region="text:video"),
}


REGISTERS = 65536
"""Registers of a multiprocessor; a thread takes them by eights."""


def launched(kind: str, what: str, dim: int, arch: int = 90, more: int = 0) -> list[Compiled]:
    """The kernels that one pattern launches over a plane.

    Args:
        what: `dense`, `lines`, `grid` or `blocks`, with their estimate.
        more: tokens of the prompt's end.
    """
    layout = PromptLayout.spans(("text", 70), ("video", 240), ("text", 90 + more), frame=12)
    plane: Plane = PLANES[kind](layout)
    tokens = len(layout)
    states = [
        torch.zeros(tokens, count, dim, dtype=torch.bfloat16).transpose(0, 1)
        for count in (HEADS, 2, 2)
    ]
    row, heads = States(*states, dim**-0.5), torch.arange(HEADS)
    into, backend = Partial.empty(row), TritonBackend()
    with compiling(arch) as launches:
        if what == "dense":
            backend.attend(row, plane, None, heads, into)
        elif what == "lines":
            some = [torch.arange(0, len(plane.keys), 9 + head) for head in range(HEADS)]
            index = LineIndex.build(plane, some, some, [0] * HEADS, 64)
            backend.attend(row, plane, index, heads, into)
        elif what == "blocks":
            groups = [BlockCells(64, 2, 1, [(head, 0) for head in range(HEADS)])]
            table = torch.stack([heads, torch.zeros_like(heads)])
            marks = backend.estimate(row, PlaneStack((plane,)), groups, table) > 0
            backend.attend(row, plane, BlockIndex.of(marks, (64,) * HEADS), heads, into)
        else:
            columns: Any = (
                torch.tensor(column).bool() if number in FLAGS else torch.tensor(column)
                for number, column in enumerate(zip(*GRID, strict=True))
            )
            backend.attend(row, plane, GridIndex(*columns), heads, into)
    return launches


def check_two_fit(made: list[Compiled], arch: int) -> None:
    """Nothing is spilled, and registers and shared memory are enough for two programs at once."""
    for launch in made:
        registers = -(-launch.registers // 8) * 8 * 32 * launch.warps
        fit = min(REGISTERS // registers, SHARED[arch] // (launch.shared + 1024))
        assert (launch.spilled, min(fit, 2)) == (0, 2), "\n".join(map(repr, made))


@pytest.mark.slow  # compiles 60 kernels, of some seconds each
@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("kind", PLANES)
def test_two_programs_of_each_kernel_fit_a_multiprocessor(
    kind: str, dim: int, arch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("dense", "lines", "grid", "blocks")
    made = [launch for what in kinds for launch in launched(kind, what, dim, arch)]
    assert len({launch.name for launch in made}) == 6
    monkeypatch.setattr(dense, "SPLIT_KEYS", 64)
    for what in ("dense", "grid"):
        made += launched(kind, what, dim, arch)
    assert "merge_kernel" in {launch.name for launch in made}
    check_two_fit(made, arch)


def test_two_programs_of_vertical_slash_fit_a_multiprocessor() -> None:
    check_two_fit(launched("pair", "lines", 128), 90)


def test_the_band_of_a_grid_spills_nothing() -> None:
    """The masks of these take the most registers: half a kilobyte was spilled a thread."""
    band = launched("pair", "grid", 64)[-1]
    assert (band.name, band.spilled) == ("band_kernel", 0), band


def test_prompts_of_any_length_share_compiled_kernels() -> None:
    made = [
        [
            launch.ptx
            for what in ("dense", "lines", "blocks")
            for launch in launched("pair", what, 64, more=more)
        ]
        for more in (0, 7, 54)
    ]
    assert made[0] == made[1] == made[2]
