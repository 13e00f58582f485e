"""FlexAttention as a backend: the same pairs as the reference."""

from __future__ import annotations

import pytest
import torch

from sooner.sparse.attention import Partial, Reference, States, sparse_attention
from sooner.sparse.attention.flex import Flex, block_mask, dense_mask, line_mask
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import LineIndex
from sooner.sparse.patterns import (
    Dense,
    Grid,
    QBoundary,
    Strided,
    StridedFixed,
    TriShape,
    TwoDBoundary,
    VerticalSlash,
)
from sooner.sparse.plane import by_pair, whole
from sparse.contexts import states

LAYOUT = PromptLayout.spans(("padding", 5), ("text", 9), ("video", 190), ("text", 60), frame=19)
PATTERNS = [
    Dense(),
    TriShape(3, 20, bottom=10),
    VerticalSlash(10, 20),
    Grid(7, 3, sink=2, local=5),
    Strided(11),
    StridedFixed(10),
    QBoundary({"video": Grid("frame"), "text": VerticalSlash(5, 9)}),
    TwoDBoundary({"video:video": Grid("frame", vline=False)}),
]


def test_flex_computes_the_reference_s_pairs() -> None:
    row = states(len(LAYOUT), len(PATTERNS), 2)
    made = sparse_attention(row, LAYOUT, PATTERNS, Flex())
    expected = sparse_attention(row, LAYOUT, PATTERNS, Reference())
    torch.testing.assert_close(made.output, expected.output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(made.lse, expected.lse, rtol=1e-5, atol=1e-5)


def test_blocks_without_a_pair_are_left_out() -> None:
    plane = whole(PromptLayout.text(1024))
    index = LineIndex.build(plane, [torch.tensor([0])], [torch.tensor([0])], [0])
    blocks = block_mask(plane, index, 1, line_mask(plane, index))
    # The own block of 128, and the first one for the column.
    assert blocks.to_dense()[0, 0].sum().item() == 8 + 7
    assert block_mask(plane, None, 1, dense_mask(plane)).to_dense().sum().item() == 36


def test_a_pair_without_a_seen_key_stays_empty() -> None:
    layout = PromptLayout.spans(("text", 20), ("video", 30))
    row, plane = states(50, 1, 1), by_pair(layout, "text", "video")
    into = Partial.empty(row)
    Flex().dense(row, plane, torch.tensor([0]), into)
    assert bool((into.lse == -torch.inf).all())
    assert not into.output.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_stays_near_the_reference(dtype: torch.dtype) -> None:
    row = states(150, 2, 1)
    halved = States(*(part.to(dtype) for part in (row.queries, row.keys, row.values)), row.scale)
    layout, picked = PromptLayout.text(150), [Grid(5, 1), VerticalSlash(4, 9)]
    made = sparse_attention(halved, layout, picked, Flex())
    expected = sparse_attention(halved, layout, picked, Reference())
    eps = torch.finfo(dtype).eps  # weights and results are rounded once each
    torch.testing.assert_close(made.output, expected.output, rtol=2 * eps, atol=2 * eps)
