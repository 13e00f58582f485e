"""Whole layers: rows of a batch in one launch, split keys, and results in the model's dtype."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, agree, nothing_yet, states

from sooner.sparse.attention import Partial, Reference, States
from sooner.sparse.attention.triton import TritonBackend
from sooner.sparse.attention.work import LayerPlan
from sooner.sparse.kernels import dense
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import LineIndex
from sooner.sparse.patterns import AShape, BlockTopP, Dense, Grid, QBoundary, TwoDBoundary
from sooner.sparse.plane import plane_of

LAYOUTS = [
    PromptLayout.spans(*spans, frame=12).to(DEVICE)
    for spans in (
        (("text", 20), ("video", 96), ("text", 30)),
        (("padding", 9), ("text", 27), ("video", 84), ("padding", 3), ("text", 23)),
        (("padding", 146),),
    )
]
PATTERNS = (
    Grid("frame", phase=3),
    TwoDBoundary({"video:video": Grid(12, 3), "text:video": AShape(4, 4)}),
    QBoundary({"video": Grid(5, 1, sink=2, local=4), "text": Dense()}),
    AShape(3, 9),
)
BLOCKS = (
    BlockTopP(0.6, 16, 3, bottom=9), BlockTopP(0.6, 16, 3, bottom=9), Dense(),
    QBoundary({"video": BlockTopP(0.5, 32, bottom=0), "text": AShape(3, 9)}),
)  # fmt: skip


def batch(dtype: torch.dtype = torch.float32) -> States:
    rows = [states(layout, 4, 2, 64, dtype, seed) for seed, layout in enumerate(LAYOUTS)]
    names = ("queries", "keys", "values")
    return States(*(torch.stack([getattr(row, name) for row in rows]) for name in names), 0.125)


@pytest.mark.parametrize("shortest", [32, pytest.param(1 << 20, marks=pytest.mark.slow)])
def test_ragged_rows_are_what_the_reference_makes_of_each(
    shortest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding holds NaN. Keys are split into parts of 32 and more, or not at all."""
    monkeypatch.setattr(dense, "SPLIT_KEYS", shortest)
    monkeypatch.setattr(dense, "SPLIT_PROGRAMS", 48)
    patterns, rows = [PATTERNS, BLOCKS, PATTERNS], batch()
    made, lse, _ = TritonBackend().layer(rows, LAYOUTS, patterns)
    expected, expected_lse, _ = Reference().layer(rows, LAYOUTS, patterns)
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-5, atol=1e-5)
    assert not made[2].any()


@pytest.mark.parametrize("slots", [2, 7, pytest.param(2048, marks=pytest.mark.slow)])
def test_split_last_queries_go_on_from_what_was_there(
    slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words see words, then a video; of these, 0, 7 and 50 at the end see all keys."""
    monkeypatch.setattr(dense, "SPLIT_KEYS", 16)
    monkeypatch.setattr(dense, "SPLIT_PROGRAMS", 3 * slots)
    layout = LAYOUTS[1]
    row, heads = states(layout, 3, 1, 64), torch.arange(3, device=DEVICE)
    lines = [torch.arange(0, 40, 9, device=DEVICE)] * 3
    made, expected = nothing_yet(row), Partial.empty(row)
    for plane in (plane_of(layout, "text:text"), plane_of(layout, "text:video")):
        index = LineIndex.build(plane, lines, lines, [0, 7, 50])
        TritonBackend().attend(row, plane, index, heads, made)
        Reference().attend(row, plane, index, heads, expected)
    agree(made, expected)


def test_a_head_with_a_single_kernel_is_written_in_the_dtype_of_its_queries() -> None:
    rows, patterns = batch(torch.float16), (PATTERNS,) * 3
    plan = LayerPlan.of(LAYOUTS, patterns, 1)
    assert sorted(plan.arrays["buffered"].T.tolist()) == [[0, 1], [0, 2], [1, 1], [1, 2]]
    made, *_ = TritonBackend().layer(rows, LAYOUTS, patterns)
    wide, *_ = TritonBackend().layer(
        States(*(part.float() for part in (rows.queries, rows.keys, rows.values)), rows.scale),
        LAYOUTS, patterns,
    )  # fmt: skip
    assert made.dtype == torch.float16
    assert made.transpose(1, 2).is_contiguous()
    torch.testing.assert_close(made.float(), wide, rtol=4e-3, atol=4e-3)
