"""Costs of sparse attention: measured once, compared with dense, and with a break-even length."""

from __future__ import annotations

import pytest

from sooner.errors import SoonerError
from sooner.sparse.attention.cpu import Fused
from sooner.sparse.cost import AttentionShape, Cost, MeasuredCosts, measure
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import AShape, Dense

SHAPE = AttentionShape(4, 2, 16)


def test_a_sparse_layer_is_timed_against_a_dense_layer() -> None:
    cost = measure([AShape(8, 64)] * 4, SHAPE.random(300), PromptLayout.text(300), Fused())
    assert min(cost.seconds, cost.dense) > 0
    assert cost.relative == cost.seconds / cost.dense


@pytest.mark.parametrize("true", [100, 1000, 1100, 5000])
def test_the_break_even_length_is_right_within_an_eighth(true: int) -> None:
    class Known(MeasuredCosts):
        def at(self, patterns: object, tokens: int) -> Cost:
            return Cost(float(true), float(tokens), 0.5)

    length = Known(SHAPE, Fused()).break_even(Dense())
    assert length is not None
    assert max(true, 256) <= length <= max(1.125 * true + 64, 256)


def test_heads_and_patterns_that_do_not_match_are_refused() -> None:
    with pytest.raises(SoonerError, match="3 patterns for 4 heads"):
        MeasuredCosts(SHAPE, Fused()).at([Dense()] * 3, 100)
    with pytest.raises(SoonerError, match="5 query heads do not share 2 key heads"):
        AttentionShape(5, 2, 16)
