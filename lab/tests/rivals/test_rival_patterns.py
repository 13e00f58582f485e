"""The static rivals of MMInference's patterns, pair by pair against their definitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from sooner.sparse.attention import sparse_attention
from sooner.sparse.attention.fused import Fused
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import AShape, Pattern
from sooner_lab.rivals.patterns import Strided
from sparse_attention.contexts import mask_of, states

TOKENS, FRAME = 61, 8
LAYOUT = PromptLayout.spans(("video", 48), ("text", 13), frame=FRAME)
DEFINITIONS: list[tuple[Pattern, Callable[[int, int], bool]]] = [
    (AShape(3, 64, bottom=9), lambda query, key: True),
    (Strided(5), lambda query, key: (query - key) % 5 == 0 or query - key < 5),
    (Strided("frame", local=2), lambda query, key: (query - key) % FRAME == 0 or query - key < 2),
]


@pytest.mark.parametrize(
    ("pattern", "is_seen"), DEFINITIONS, ids=[str(pattern) for pattern, _ in DEFINITIONS]
)
def test_a_pattern_is_its_definition(pattern: Pattern, is_seen: Callable[[int, int], bool]) -> None:
    expected = [[k <= q and is_seen(q, k) for k in range(TOKENS)] for q in range(TOKENS)]
    assert mask_of(pattern, LAYOUT).tolist() == expected


def test_the_last_queries_of_a_tri_shape_see_everything() -> None:
    rows = mask_of(AShape(3, 1, bottom=9), PromptLayout.text(200)).sum(1)
    assert rows[-9:].tolist() == list(range(192, 201))
    assert int(rows[-10]) < 80


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in DEFINITIONS], ids=str)
def test_attention_is_a_softmax_over_the_pattern(pattern: Pattern) -> None:
    row = states(TOKENS, 2, 1)
    made = sparse_attention(row, LAYOUT, [pattern] * 2, Fused())
    scores = row.queries @ row.keys[0].T * row.scale
    masked = scores.masked_fill(~mask_of(pattern, LAYOUT), -torch.inf)
    torch.testing.assert_close(
        made.output, masked.softmax(-1) @ row.values[0], rtol=1e-5, atol=1e-5
    )
