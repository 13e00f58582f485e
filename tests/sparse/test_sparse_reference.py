"""The pieces of sparse attention against one softmax under one mask."""

from __future__ import annotations

import pytest
import torch

from sooner.sparse.attention import Reference, sparse_attention
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import (
    AShape,
    Dense,
    Grid,
    HeadPattern,
    QBoundary,
    Strided,
    StridedFixed,
    TriShape,
    TwoDBoundary,
    VerticalSlash,
    pattern_from_dict,
)
from sparse.contexts import states

LAYOUTS = {
    "text": PromptLayout.text(150),
    "video": PromptLayout.spans(("text", 9), ("video", 160), ("text", 21), frame=16),
    "mixed": PromptLayout.spans(
        ("video", 64), ("text", 30), ("image", 25), ("video", 48), ("text", 17), frame=16
    ),
    "padded": PromptLayout.spans(
        ("padding", 7), ("text", 5), ("video", 96), ("padding", 11), frame=12
    ),
    "one": PromptLayout.text(1),
}
PATTERNS: list[HeadPattern] = [
    Dense(),
    AShape(4, 70),
    TriShape(3, 20, bottom=10),
    VerticalSlash(10, 20),
    Grid("frame", hline=False),
    Grid("auto", max_stride=40, slash=False),
    Grid(7, 3, sink=2, local=5),
    Strided(),
    StridedFixed(10),
    QBoundary({"video": Grid("frame"), "text": VerticalSlash(5, 9)}),
    TwoDBoundary(
        {
            "video:video": Grid("frame", vline=False),
            "text:video": AShape(3, 8),
            "image:text": Grid(),
        }
    ),
]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_parts_add_up_to_a_softmax_under_the_pattern_s_mask(layout: PromptLayout) -> None:
    row = states(len(layout), 2 * ((len(PATTERNS) + 1) // 2), 2)
    patterns = [*PATTERNS, Dense()][: len(row.queries)]
    made = sparse_attention(row, layout, patterns, Reference())
    for head, pattern in enumerate(patterns):
        queries, keys = row.queries[head], row.keys[head // row.group]
        mask = pattern.mask(layout, queries, keys, row.scale)
        scores = (queries @ keys.T * row.scale).masked_fill(~mask, -torch.inf)
        expected = scores.softmax(1).nan_to_num(0) @ row.values[head // row.group]
        torch.testing.assert_close(made.output[head], expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(made.lse[head], scores.logsumexp(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_patterns_survive_their_plain_data(pattern: HeadPattern) -> None:
    again = pattern_from_dict(pattern.to_dict())
    assert again == pattern
    assert hash(again) == hash(pattern)
