"""Slash lines of a grid: each class of ranks against itself, many classes in one call."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from .canvas import Accumulator, HeadStates, Stairs, classes

AT_ONCE = 2048  # states that are copied for one call, so that they stay in the cache
ROWS = 4096  # queries of one class in one call


def scattered(part: HeadStates, stride: int, lone: int | None, canvas: Accumulator) -> None:
    """Attends class by class, for any frontier.

    Args:
        lone: a class to be left out.
    """
    phases = part.frontier % stride
    for number in phases.unique().tolist():
        if number == lone:
            continue
        which = (phases == number).nonzero()[:, 0]
        counts = part.frontier[which] // stride + 1
        stairs = part.stairs(which, counts, slice(number, None, stride))
        for chunk, output, lse in stairs.climb(256):
            seen = canvas.rows(which[chunk])
            seen.merge(output[0, 0], lse[0, 0])
            canvas.output[which[chunk]] = seen.output
            canvas.lse[which[chunk]] = seen.lse


def ramp(part: HeadStates, stride: int, lone: int | None, canvas: Accumulator) -> None:
    """Attends to neighbouring classes together, for a frontier that rises by one from query to
    query."""
    for stretch in stretches(int(part.frontier[0]), len(part), stride, lone):
        counts = torch.arange(stretch.before + 1, stretch.keys + 1)
        desk = CopyBuffers.of(part, max(AT_ONCE // stretch.keys, 1) * stretch.keys)
        for first, width in stretch.split(AT_ONCE):
            rank = (int(part.frontier[0]) + first) % stride
            stairs = Stairs(
                desk.queries(classes(part.queries, first, stride, stretch.rows, width)),
                desk.keys(classes(part.keys, rank, stride, stretch.keys, width)),
                desk.values(classes(part.values, rank, stride, stretch.keys, width)),
                counts,
                part.scale,
            )
            seen = canvas.classes(first, stride, stretch.rows, width)
            for chunk, output, lse in stairs.climb(ROWS):
                seen.rows(chunk).merge(output[0], lse[0])


@dataclass(frozen=True)
class Stretch:
    """Neighbouring classes that have equally many queries and keys.

    Attributes:
        first: the first class's first query.
        width: number of classes.
        rows: queries of each class.
        before: keys of each class in front of its first query's own.
    """

    first: int
    width: int
    rows: int
    before: int

    @property
    def keys(self) -> int:
        """Keys of each class that its last query sees."""
        return self.before + self.rows

    def split(self, states: int) -> list[tuple[int, int]]:
        """First and number of the classes that together have about so many keys."""
        size, end = max(states // self.keys, 1), self.first + self.width
        return [(first, min(size, end - first)) for first in range(self.first, end, size)]


def stretches(start: int, total: int, stride: int, lone: int | None) -> list[Stretch]:
    """Returns the classes of a ramp but for `lone`.

    Args:
        start: the first query's frontier.
        total: queries.
    """
    end = min(stride, total)
    skipped = -1 if lone is None else (lone - start) % stride
    # Classes differ in their queries behind the last full round, and in their keys behind the
    # first query of class 0.
    cuts = {0, total % stride, -start % stride, end}
    if lone is not None:
        cuts |= {skipped, skipped + 1}
    edges = sorted(cut for cut in cuts if cut <= end)
    return [
        Stretch(first, last - first, (total - first - 1) // stride + 1, (start + first) // stride)
        for first, last in pairwise(edges)
        if first != skipped
    ]


@dataclass(frozen=True, eq=False)
class CopyBuffers:
    """Room for copies that every call uses again: fresh memory is dear.

    Attributes:
        room: `[3, states, head_dim]`.
    """

    room: Tensor

    @classmethod
    def of(cls, part: HeadStates, states: int) -> CopyBuffers:
        """Returns room for so many queries, keys and values."""
        return cls(part.keys.new_empty(3, states, part.keys.shape[1]))

    def queries(self, states: Tensor) -> Tensor:
        """Returns a copy of `[width, rows, head_dim]`, as `[1, width, rows, head_dim]`."""
        return self._copy(0, states)

    def keys(self, states: Tensor) -> Tensor:
        """Returns a buffer of keys, as `queries` does."""
        return self._copy(1, states)

    def values(self, states: Tensor) -> Tensor:
        """Returns a buffer of values, as `queries` does."""
        return self._copy(2, states)

    def _copy(self, place: int, states: Tensor) -> Tensor:
        count = states.shape[0] * states.shape[1]
        return self.room[place, :count].view(states.shape).copy_(states)[None]
