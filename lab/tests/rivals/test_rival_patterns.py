"""Rivals of MMInference, pair by pair against their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from sooner.sparse.attention.fused import Fused
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import AShape
from sooner.sparse.plane import whole
from sooner_lab.rivals import indices
from sooner_lab.rivals.patterns import static_index
from sparse_attention.contexts import mask_of, states

FRAME, TOKENS = 8, 400
LAYOUT = PromptLayout.spans(("text", 16), ("video", 360), ("text", 24), frame=FRAME)
PLANE = whole(LAYOUT)
ROW = states(TOKENS, 4, 2, scale=2.0)
RIVALS: dict[str, indices.Rival] = {
    name: partial(indices.static, name)
    for name in ("a-shape", "tri-shape", "sf-fixed", "sf-strided")
}
KINDS = [("a-shape", 50.0, 400.0), ("lines", 400.0, 400.0), ("lines", 400.0, 40.0)]
RIVALS["minference"] = partial(indices.minference, [*KINDS, ("blocks", 0.0, 400.0)])
RIVALS["flexprefill"] = indices.flexprefill


def seen_by(groups: indices.Groups) -> Tensor:
    """Returns what every head sees, `[heads, tokens, tokens]` bool."""
    seen = torch.zeros(4, TOKENS, TOKENS, dtype=torch.bool)
    for group in groups:
        assert group.index is not None
        seen[group.heads] = group.index.seen_by_all(PLANE, slice(None))
    return seen


def last_weights(head: int, last: int = 64) -> Tensor:
    """Returns the last queries' attention, `[last, tokens]`."""
    scores = ROW.queries[head, -last:] @ ROW.keys[head // 2].T * ROW.scale
    later = torch.arange(TOKENS) > torch.arange(TOKENS - last, TOKENS)[:, None]
    return scores.masked_fill(later, -torch.inf).softmax(1)


def by_distance(weights: Tensor) -> list[float]:
    first = TOKENS - len(weights)
    return [float(weights.diagonal(first - apart).sum()) for apart in range(TOKENS)]


def largest(sums: list[float], count: int) -> set[int]:
    return set(sorted(range(len(sums)), key=lambda place: -sums[place])[:count])


@pytest.mark.parametrize(
    ("name", "budget", "is_seen"),
    [
        # A twelfth and a quarter of each segment's eight tokens: in turns, and two.
        ("sf-fixed", 1 / 4, lambda q, k: q // FRAME == k // FRAME or k % FRAME < 2),
        ("sf-fixed", 1 / 16, lambda q, k: q // FRAME == k // FRAME or k % 16 == 8),
        ("sf-strided", 1 / 4, lambda q, k: (q - k) % FRAME == 0 or q - k < 25),
    ],
)
def test_a_static_index_is_its_definition(
    name: str, budget: float, is_seen: Callable[[int, int], bool]
) -> None:
    seen = static_index(name, PLANE, budget).seen(0, PLANE)
    expected = [[k <= q and is_seen(q, k) for k in range(TOKENS)] for q in range(TOKENS)]
    assert seen.tolist() == expected


def test_the_last_queries_of_a_tri_shape_see_everything() -> None:
    rows = mask_of(AShape(3, 1, bottom=9), PromptLayout.text(200)).sum(1)
    assert rows[-9:].tolist() == list(range(192, 201))
    assert int(rows[-10]) < 80


def kernel_row(end: int, vertical: set[int], slash: set[int]) -> set[int]:
    """Returns the keys that MInference's kernel computes for the 64 queries before `end`."""
    ends = [max(end - apart, 64) for apart in sorted(slash, reverse=True) if apart < end]
    first, last, keys = ends[0] - 64, ends[0], set(vertical)
    for line in ends[1:]:
        if line > last + 64:
            keys |= set(range(first, last))
            first, last = line - 64, line
        elif line > last:
            last += 64
    return keys | set(range(first, last))


def test_lines_of_minference_are_those_of_its_kernel() -> None:
    seen = seen_by(RIVALS["minference"](ROW, PLANE)(0.3))
    weights = last_weights(1)
    columns, distances = weights.sum(0).tolist(), by_distance(weights)
    vertical = largest([math.inf] * 30 + columns[30:], 120)
    slash = largest([math.inf] * 100 + distances[100:], 120)
    row = kernel_row(448, vertical, slash)  # blocks before the farthest line start windows anew
    for query in range(384, TOKENS):
        assert set(seen[1, query].nonzero()[:, 0].tolist()) == row & set(range(query + 1))
    assert seen[0, 399].nonzero()[:, 0].tolist() == [*range(30), *range(265, 400)]


def test_blocks_are_those_whose_means_agree() -> None:
    seen = seen_by(RIVALS["minference"](ROW, PLANE)(0.4))[3]  # three blocks of each row
    queries, keys = (part.split(64) for part in (ROW.queries[3], ROW.keys[1]))
    for row, query in enumerate(queries):
        scores = [float(query.mean(0) @ key.mean(0)) for key in keys[: row + 1]]
        blocks = largest(scores, 3) | {row}
        expected = [key // 64 in blocks and key <= 64 * row for key in range(TOKENS)]
        assert seen[64 * row].tolist() == expected


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_flexprefill_is_its_definition(tau: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no head whose block means are trusted, and with all of them."""
    monkeypatch.setattr(indices, "TAU", tau)
    gamma, blocks = 0.6, 7
    seen = seen_by(indices.flexprefill(ROW, PLANE)(gamma))[0, ::64, ::64]
    weights = last_weights(0) / 64
    sides = []
    for sums in (weights.sum(0).tolist(), by_distance(weights)):
        masses = list(accumulate(sorted(sums, reverse=True)))
        tokens = sum(mass <= gamma for mass in masses) + 1
        pooled = [sum(sums[64 * block : 64 * block + 64]) for block in range(blocks)]
        count = 1 if tau else tokens // 64 + 1
        sides.append(largest([math.inf, *pooled[1:]], count))
    causal = [(q, k) for q in range(blocks) for k in range(q + 1)]
    expected = {(q, k) for q, k in causal if k in sides[0] | {q} or q - k in sides[1]}
    if tau:
        parts = (states[0].split(64) for states in (ROW.queries, ROW.keys))
        queries, keys = (torch.stack([block.mean(0) for block in part]) for part in parts)
        scores = (queries @ keys.T * ROW.scale).masked_fill(torch.ones(7, 7).triu(1) > 0, -math.inf)
        ranked = scores.softmax(1).flatten().sort(descending=True)
        best = ranked.indices[ranked.values.cumsum(0) <= gamma * blocks].tolist()
        expected |= {(place // blocks, place % blocks) for place in best}
    assert {tuple(pair) for pair in seen.nonzero().tolist()} == expected


@pytest.mark.parametrize("name", RIVALS)
def test_sizes_are_tuned_to_pairs_and_outputs_are_softmaxes_over_them(name: str) -> None:
    sized = RIVALS[name](ROW, PLANE)
    wanted = int(0.5 * 4 * PLANE.pairs)
    groups = sized(indices.tune(sized, wanted))
    seen = seen_by(groups)
    assert indices.count_pairs(groups) == int(seen.sum()) <= wanted
    # A step is a block of keys in a row of blocks here, a hundredth of all pairs.
    assert (
        indices.count_pairs(groups)
        > (0.9 if name in ("minference", "flexprefill") else 0.98) * wanted
    )
    made = indices.attend(ROW, groups, Fused())
    keys, values = (part.repeat_interleave(2, 0) for part in (ROW.keys, ROW.values))
    scores = (ROW.queries @ keys.mT * ROW.scale).masked_fill(~seen, -torch.inf)
    torch.testing.assert_close(made.output, scores.softmax(-1) @ values, rtol=1e-4, atol=1e-5)
