"""The windows of vertical-slash heads are MInference's, and pairs are counted, not sampled."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import GridIndex, LineIndex, share
from sooner.sparse.plane import Plane, by_pair, by_query, whole

MIXED = PromptLayout.spans(
    ("padding", 5), ("text", 30), ("video", 300), ("text", 41), ("video", 170), frame=17
)
PLANES = {
    "whole": whole(PromptLayout.text(517)),
    "padded": whole(MIXED),
    "query": by_query(MIXED, "video"),
    "pair": by_pair(MIXED, "text", "video"),
    "blind": by_pair(MIXED, "video", "text"),
    "one": whole(PromptLayout.text(1)),
}


def minference(slash: list[int], end: int, block: int) -> set[int]:
    """Ranks that one block of queries sees along slash lines, the block ending before `end`.

    A port of `convert_vertical_slash_indexes_kernel` of MInference's csrc without the columns;
    `slash` holds distances, the farthest first.
    """
    seen: set[int] = set()
    lines = iter(slash)
    at = next(lines)
    while at >= end:
        at = next(lines)
    at = max(end - at, block)
    start, stop = at - block, at
    for apart in lines:
        at = max(end - apart, block)
        if at > stop + block:
            seen |= set(range(start, stop))
            start, stop = at - block, at
        elif at > stop:
            stop += block
    return seen | set(range(start, stop))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 900), min_size=1, max_size=30, unique=True))
def test_windows_are_those_of_minference_s_kernel(slash: list[int]) -> None:
    """For every block that all lines reach; in those before, windows are cut at the border."""
    block, keys, slash = 64, 2048, sorted({0, *slash}, reverse=True)
    plane = whole(PromptLayout.text(keys))
    index = LineIndex.build(plane, [torch.tensor([0])[:0]], [torch.tensor(slash)], [0], block)
    seen = index.seen(0, plane)
    for end in range(block, keys + 1, block):
        query = end - 1  # the last of its block sees all that the block computes
        made = set(seen[query].nonzero()[:, 0].tolist())
        if slash[0] + block <= end:
            expected = minference(slash, end, block)
            nearby = set(range(end - block, end))
            assert made == {rank for rank in expected | nearby if rank <= query}
        for first in range(end - block, end):  # and every line is there in every block
            lines = [first - apart for apart in slash if apart <= first]
            assert bool(seen[first, lines].all())


@pytest.mark.parametrize("name", PLANES)
def test_line_pairs_are_counted_singly(name: str) -> None:
    plane, generator = PLANES[name], torch.Generator().manual_seed(2)
    keys = len(plane.keys)

    def some(count: int) -> torch.Tensor:
        return torch.randperm(keys, generator=generator)[:count]

    vertical, slash = [some(0), some(9), some(40), some(3)], [some(1), some(7), some(0), some(60)]
    vertical[3] = torch.cat([vertical[3]] * 2)  # a column that is named twice is seen once
    for block in (8, 64):
        index = LineIndex.build(plane, vertical, slash, [0, 0, 5, 10_000], block)
        seen = [int(index.seen(head, plane).sum()) for head in range(4)]
        assert index.pairs(plane).tolist() == seen
        expected = torch.tensor(seen, dtype=torch.double) / max(plane.pairs, 1)
        torch.testing.assert_close(share(index, plane), expected)


def grid(plane: Plane, *values: tuple) -> GridIndex:
    return GridIndex(*(torch.tensor(column) for column in zip(*values, strict=True)))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(PLANES)), st.integers(1, 90), st.integers(0, 89),
    st.tuples(*[st.booleans()] * 4), st.integers(0, 700), st.integers(1, 90),
)  # fmt: skip
def test_grid_pairs_are_counted_singly(
    name: str, stride: int, phase: int, flags: tuple[bool, ...], sink: int, local: int
) -> None:
    plane = PLANES[name]
    index = grid(plane, (stride, phase % stride, *flags, sink, local))
    assert index.pairs(plane).tolist() == [int(index.seen(0, plane).sum())]
