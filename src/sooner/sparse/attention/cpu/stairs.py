"""Attention under a staircase: each query sees the first so many keys, and never fewer than before.

Causality is a staircase in every plane, and stays one for the keys of one class or the lines of a
vertical pattern. So this is the one shape that all patterns are cut into.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from .canvas import Canvas
from .flash import additive, attend

Piece = tuple[slice, Tensor, Tensor]
"""Queries, their output `[batch, heads, queries, head_dim]` and mass `[batch, heads, queries]`."""

SPLIT = 1024  # keys in front of a chunk from which a call of their own, without a mask, pays
FLAT = 96  # queries with equal counts that are worth a call of their own


@dataclass(frozen=True, eq=False)
class Stairs:
    """States whose queries see the first `counts` keys.

    Attributes:
        queries: `[batch, heads, queries, head_dim]`.
        keys, values: `[batch, heads, keys, head_dim]`.
        counts: keys that each query sees, at least 1, never falling, `[queries]`.
        scale: factor of the scores.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    counts: Tensor
    scale: float

    def climb(self, rows: int) -> Iterator[Piece]:
        """Attention in chunks of about `rows` queries; every query is in one of them."""
        if not len(self.counts):
            return
        starts = starts_of(self.counts, rows)
        ends = [*starts[1:], len(self.counts)]
        low = self.counts[starts].tolist()
        high = self.counts[[end - 1 for end in ends]].tolist()
        memory = _Memory(self.queries.dtype)
        for start, end, least, most in zip(starts, ends, low, high, strict=True):
            chunk = slice(start, end)
            if least == most:
                yield chunk, *self._attend(chunk, slice(0, most))
            else:
                yield chunk, *self._tread(chunk, least, most, memory)

    def _tread(self, chunk: slice, least: int, most: int, memory: _Memory) -> tuple[Tensor, Tensor]:
        """A chunk with steps in it: the keys that all see, and those at the steps."""
        # One key that all see stands at the steps too, so that no query is blind there.
        counts, first = self.counts[chunk], least - 1
        if most - first == len(counts) and bool((counts.diff() == 1).all()):
            output, mass = self._attend(chunk, slice(first, most), causal=True)
        else:
            first = first if least > SPLIT else 0
            mask = memory.mask(counts - first, most - first)
            output, mass = self._attend(chunk, slice(first, most), mask=mask)
        if first:
            before, seen = self._attend(chunk, slice(0, first))
            front = Canvas(before.float(), seen)
            front.join(output, mass)
            return front.output, front.mass
        return output, mass

    def _attend(
        self, chunk: slice, seen: slice, causal: bool = False, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        queries = self.queries[..., chunk, :]
        keys, values = self.keys[..., seen, :], self.values[..., seen, :]
        return attend(queries, keys, values, self.scale, causal, mask)


class _Memory:
    """The last mask, which evenly spaced steps need again."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.steps: Tensor | None = None
        self.kept = torch.empty(0)

    def mask(self, steps: Tensor, keys: int) -> Tensor:
        """Additive mask of queries that see the first `steps` keys."""
        if self.steps is None or not torch.equal(self.steps, steps):
            self.steps = steps
            self.kept = additive(torch.arange(keys) < steps[:, None], self.dtype)
        return self.kept


def starts_of(counts: Tensor, rows: int) -> list[int]:
    """Where chunks begin: at the steps if they are far apart, else every `rows` queries."""
    total = len(counts)
    steps = (counts.diff() > 0).nonzero()[:, 0] + 1
    if (len(steps) + 1) * FLAT > total:
        return list(range(0, total, rows))
    edges = [0, *steps.tolist(), total]
    longest = max(rows, 1024)
    return [start for a, b in pairwise(edges) for start in range(a, b, longest)]
