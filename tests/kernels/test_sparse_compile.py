"""Sparse kernels compiled for GPUs that are not here: registers, spills, launches."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from ahead_of_time import SHARED, Compiled, compiling, needs_compiler
from sooner.sparse.attention import Partial, States
from sooner.sparse.attention.triton import TritonBackend
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import GridIndex, LineIndex
from sooner.sparse.plane import Plane, plane_of, whole

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


SPILLS = {("class_kernel", kind, 128, 80): 56 for kind in ("whole", "query")}
"""Bytes a thread that are left. Two stages in place of three would spill none, and load less ahead:
nobody has timed either on an A100."""


def launched(kind: str, what: str, dim: int, arch: int = 90, more: int = 0) -> list[Compiled]:
    """The kernels that one pattern launches over a plane.

    Args:
        what: `dense`, `lines` or `grid`.
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
        else:
            columns: Any = (
                torch.tensor(column).bool() if number in FLAGS else torch.tensor(column)
                for number, column in enumerate(zip(*GRID, strict=True))
            )
            backend.attend(row, plane, GridIndex(*columns), heads, into)
    return launches


@pytest.mark.slow  # compiles 36 kernels, of some seconds each
@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("kind", PLANES)
def test_kernels_spill_nothing_and_fit_a_multiprocessor(kind: str, dim: int, arch: int) -> None:
    made = [
        launch for what in ("dense", "lines", "grid") for launch in launched(kind, what, dim, arch)
    ]
    report = "\n".join(map(repr, made))
    assert len({launch.name for launch in made}) == 4, report
    for launch in made:
        assert launch.spilled <= SPILLS.get((launch.name, kind, dim, arch), 0), report
    assert all(launch.shared <= SHARED[arch] - 1024 for launch in made), report


def test_the_band_of_a_grid_spills_nothing() -> None:
    """The masks of these take the most registers: half a kilobyte was spilled a thread."""
    bands = [launched(kind, "grid", 64)[-1] for kind in ("whole", "pair")]
    assert [launch.name for launch in bands] == ["band_kernel", "band_kernel"]
    assert not any(launch.spilled for launch in bands), bands


def test_prompts_of_any_length_share_compiled_kernels() -> None:
    made = [
        [
            launch.ptx
            for what in ("dense", "lines")
            for launch in launched("pair", what, 64, more=more)
        ]
        for more in (0, 7, 54)
    ]
    assert made[0] == made[1] == made[2]
