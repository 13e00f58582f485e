"""Grid heads: every class of ranks is a block of dense causal attention.

A pair may lie on several lines. It is computed with the first of these that it lies on: the
horizontal line of its query, the vertical line of its key, the slash line of its distance, and the
rest: sink, segment and nearest keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ...pairs import GridIndex
from ...plane import Plane
from ..partial import Partial, States
from .canvas import Accumulator, HeadStates, Stairs, additive, attend, classes, parts

AT_ONCE = 2048  # states that are copied for one call, so that they stay in the cache
ROWS = 4096  # queries of one class in one call


@dataclass(frozen=True)
class HeadGrid:
    """The entry that one head has in a `GridIndex`."""

    stride: int
    phase: int
    hline: bool
    vline: bool
    slash: bool
    segment: bool
    sink: int
    local: int

    @property
    def near(self) -> int:
        """No pair of `local` and `segment` is further apart."""
        return max(self.local, self.stride if self.segment else 0)

    def rest(self, frontier: Tensor, rank: Tensor) -> Tensor:
        """Returns pairs of sink, segment and nearest keys that lie on no vertical and no slash
        line.
        """
        apart = frontier - rank
        seen = (rank < self.sink) | (apart < self.local)
        if self.segment:
            number = (frontier - self.phase).div(self.stride, rounding_mode="floor")
            seen |= number == (rank - self.phase).div(self.stride, rounding_mode="floor")
        if self.vline:
            seen &= rank % self.stride != self.phase
        if self.slash:
            seen &= apart % self.stride != 0
        return seen & (apart >= 0)


def grid(states: States, plane: Plane, index: GridIndex, heads: Tensor, into: Partial) -> None:
    """Attends to evenly spaced lines of a plane."""
    columns = [values.tolist() for values in vars(index).values()]
    for place, part, canvas in parts(states, plane, heads, into):
        spacing = HeadGrid(*(column[place] for column in columns))
        if spacing.vline:
            _vline(part, spacing, canvas)
        if spacing.slash:
            _slash(part, spacing, canvas)
        _rest(part, spacing, canvas)
        if spacing.hline:
            _hline(part, spacing, canvas)


def _vline(part: HeadStates, spacing: HeadGrid, canvas: Accumulator) -> None:
    """All queries against the keys of the phase's class."""
    first = int(torch.searchsorted(part.frontier, spacing.phase))
    counts = (part.frontier[first:] - spacing.phase) // spacing.stride + 1
    lines = slice(spacing.phase, None, spacing.stride)
    seen = canvas.rows(slice(first, None))
    for chunk, output, lse in part.stairs(slice(first, None), counts, lines).climb(1024):
        seen.rows(chunk).put(output[0, 0], lse[0, 0])


def _hline(part: HeadStates, spacing: HeadGrid, canvas: Accumulator) -> None:
    """The queries of the phase's class against all keys, in place of what they have seen so far."""
    which = (part.frontier % spacing.stride == spacing.phase).nonzero()[:, 0]
    stairs = part.stairs(which, part.frontier[which] + 1, slice(None))
    for chunk, output, lse in stairs.climb(max(16, 2048 // spacing.stride)):
        canvas.output[which[chunk]] = output[0, 0].float()
        canvas.lse[which[chunk]] = lse[0, 0]


def _slash(part: HeadStates, spacing: HeadGrid, canvas: Accumulator) -> None:
    """Every class against itself, but for the class that vertical or horizontal lines serve."""
    lone = spacing.phase if spacing.vline or spacing.hline else None
    if part.ramp:
        _ramp(part, spacing.stride, lone, canvas)
    else:
        _scattered(part, spacing.stride, lone, canvas)


def _rest(part: HeadStates, spacing: HeadGrid, canvas: Accumulator) -> None:
    """Sink, segment and nearest keys, where they lie on no line."""
    if spacing.slash and spacing.local <= 1 and not spacing.sink and not spacing.segment:
        return
    block = spacing.stride * -(-64 // spacing.stride) if spacing.stride <= 512 else 256
    for start in range(0, len(part), block):
        chunk = slice(start, start + block)
        _rest_of(part, spacing, chunk, canvas.rows(chunk))


def _rest_of(part: HeadStates, spacing: HeadGrid, chunk: slice, canvas: Accumulator) -> None:
    frontier = part.frontier[chunk]
    near = max(int(frontier[0]) - spacing.near + 1, 0)
    rank = torch.cat(
        [torch.arange(min(spacing.sink, near)), torch.arange(near, int(frontier[-1]) + 1)]
    )
    seen = spacing.rest(frontier[:, None], rank)
    mask = additive(seen, part.queries.dtype)
    output, lse = attend(
        part.queries[chunk][None, None],
        part.keys[rank][None, None],
        part.values[rank][None, None],
        part.scale,
        mask=mask,
    )
    canvas.merge(output[0, 0], lse[0, 0].masked_fill(~seen.any(1), -torch.inf))


def _scattered(part: HeadStates, stride: int, lone: int | None, canvas: Accumulator) -> None:
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


def _ramp(part: HeadStates, stride: int, lone: int | None, canvas: Accumulator) -> None:
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
