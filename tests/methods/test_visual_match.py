"""Kept visual tokens of a target, found again in a draft's own grid: frame, line and column."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tiny
from sooner.methods.pruning import VisualGrids, match, views
from sooner.models import adapt


def square(side: int, frames: int = 1, *extra: tuple[int, int]) -> VisualGrids:
    return ((side, side),) * frames + extra


def matches(indices: list[int], target: VisualGrids, draft: VisualGrids) -> list[int]:
    return match(torch.tensor(indices, dtype=torch.long), target, draft).tolist()


@pytest.mark.parametrize(("h", "w", "to_h", "to_w"), [(14, 14, 9, 9), (6, 10, 4, 15), (3, 8, 7, 5)])
def test_every_token_is_where_its_centre_is(h: int, w: int, to_h: int, to_w: int) -> None:
    """Against the rule in words, token by token and axis by axis."""

    def stands_for(index: int, size: int, other: int, onto: int) -> bool:
        if onto >= size:  # the draft's centre lies in the target's cell
            return index * onto * 2 <= (2 * other + 1) * size < (index + 1) * onto * 2
        return other * size * 2 <= (2 * index + 1) * onto < (other + 1) * size * 2

    for line in range(h):
        for column in range(w):
            literal = [
                to_line * to_w + to_column
                for to_line in range(to_h)
                for to_column in range(to_w)
                if stands_for(line, h, to_line, to_h) and stands_for(column, w, to_column, to_w)
            ]
            indices = [line * w + column]
            assert matches(indices, ((h, w),), ((to_h, to_w),)) == literal


def test_a_newline_stays_a_newline_and_unknown_grids_are_scaled() -> None:
    target, draft = square(14, 2, (1, 1)), square(7, 2, (1, 1))
    assert matches([2 * 196], target, draft) == [2 * 49]
    assert matches([0, 5, 9], ((1, 10),), ((1, 5),)) == [0, 2, 4]
    assert matches([0, 19], ((1, 20),), square(3)) == [0, 8]


def test_those_who_only_read_have_none() -> None:
    assert matches([0, 1], square(2), ()) == []
    assert matches([], (), square(2)) == []
    indices = torch.tensor([1, 3])
    assert match(indices, square(2), square(2)) is indices


@pytest.mark.parametrize(
    ("family", "kind", "grids"),
    [
        ("llava_onevision", "video", [(2, 2)] * 4 + [(1, 1)]),
        ("llava_onevision", "image", [(1, 52)]),  # a base view, tiles, and newlines
        ("qwen2_5_vl", "video", [(2, 2)] * 2),
        ("qwen2_5_vl", "image", [(2, 3)]),
        ("qwen2_5_vl", "images", [(2, 3), (2, 3)]),
        ("qwen2_5_vl", "mixed", None),
        ("qwen3_vl", "video", [(2, 2)] * 2),
        ("llama", "text", []),
    ],
)
def test_grids_are_those_of_the_processor(family: str, kind: str, grids: Any) -> None:
    adapter, inputs = adapt(tiny.model(family)), tiny.inputs(family, kind, 2)
    made = views(adapter, inputs, copies=2)
    assert len(made) == 4
    assert made[0] == made[1]
    counts = adapter.visual_tokens(inputs).sum(1).tolist()
    assert [sum(map(math.prod, view)) for view in made[::2]] == counts
    if grids is not None:
        assert made[0] == tuple(grids)
    else:  # pictures and frames have their own grids in whatever order
        assert {(2, 2), (2, 3)} <= set(made[0])
