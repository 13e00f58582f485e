"""Line heads: diagonals of blocks as batches of tiles, vertical lines as keys of every tile.

A tile is up to `block` queries with frontiers in one block. It sees three disjoint sets of keys:
its own block, the blocks on the other diagonals, and the vertical lines outside of all those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ...index import LineIndex
from ...plane import Plane
from ..partial import Partial, States
from .canvas import Canvas
from .flash import additive, attend
from .part import Part, parts

COPIED = 4096  # keys that are gathered at a time, so that they stay in the cache
BAND = 3  # neighbouring diagonals from which on their keys are read in place


@dataclass(frozen=True, eq=False)
class Tiles:
    """Queries of equally many tiles, and what else a call needs to know.

    Attributes:
        queries: `[tiles, block, head_dim]`.
        frontier: `[tiles, block]`.
        number: of each tile's own block, never falling, `[tiles]`.
        canvas: where results go, `[tiles, block]`.
    """

    queries: Tensor
    frontier: Tensor
    number: Tensor
    canvas: Canvas

    def some(self, which: slice) -> Tiles:
        canvas = Canvas(self.canvas.output[which], self.canvas.mass[which])
        return Tiles(self.queries[which], self.frontier[which], self.number[which], canvas)


@dataclass(frozen=True, eq=False)
class Drawn:
    """One head's entry of a `LineIndex`.

    Attributes:
        vertical: ranks, ascending, `[lines]`.
        seen: which diagonals are seen, `[blocks]` bool; the first is.
        bands: neighbouring diagonals from the second on, as `(first, end)`, ascending.
        block: side of a block.
    """

    vertical: Tensor
    seen: Tensor
    bands: list[tuple[int, int]]
    block: int

    @classmethod
    def of(cls, index: LineIndex, place: int, keys: int) -> Drawn:
        vertical, seen = index.vertical[place], index.diagonals[place]
        edges = seen[1:].int().diff(prepend=seen.new_zeros(1), append=seen.new_zeros(1))
        starts, ends = ((edges == sign).nonzero()[:, 0] + 1 for sign in (1, -1))
        bands = list(zip(starts.tolist(), ends.tolist(), strict=True))
        return cls(vertical[vertical < keys], seen, bands, index.block)


def lines(states: States, plane: Plane, index: LineIndex, heads: Tensor, into: Partial) -> None:
    """Vertical lines and diagonals of a plane."""
    for place, part, canvas in parts(states, plane, heads, into):
        split = max(len(part) - int(index.bottom[place]), 0)
        drawn = Drawn.of(index, place, len(part.keys))
        if split:
            _above(part, drawn, split, canvas)
        bottom = slice(split, None)
        stairs = part.stairs(bottom, part.frontier[bottom] + 1, slice(None))
        for chunk, output, mass in stairs.climb(2048):
            canvas.rows(bottom).rows(chunk).put(output[0, 0], mass[0, 0])


def _above(part: Part, drawn: Drawn, split: int, canvas: Canvas) -> None:
    """The queries above the bottom: whole tiles in place, what is left over gathered."""
    block, start = drawn.block, int(part.frontier[0])
    first = min(-start % block, split) if part.ramp else split
    whole = (split - first) // block
    if whole:
        _tiles(part, drawn, _in_place(part, drawn, first, whole, canvas), regular=True)
    rest = [slice(0, first), slice(first + whole * block, split)]
    for which in rest:
        if which.start < which.stop:
            _gathered(part, drawn, which, canvas)


def _in_place(part: Part, drawn: Drawn, first: int, whole: int, canvas: Canvas) -> Tiles:
    """Full tiles of a ramp, from query `first` on, as views."""
    which, shape = slice(first, first + whole * drawn.block), (whole, drawn.block)
    seen = canvas.rows(which)
    frontier = part.frontier[which].unflatten(0, shape)
    return Tiles(
        part.queries[which].unflatten(0, shape),
        frontier,
        frontier[:, 0] // drawn.block,
        Canvas(seen.output.unflatten(0, shape), seen.mass.unflatten(0, shape)),
    )


def _gathered(part: Part, drawn: Drawn, which: slice, canvas: Canvas) -> None:
    """Tiles of any frontier, filled up by repeating their first query."""
    block = drawn.block
    own = part.frontier[which] // block
    number, sizes = own.unique_consecutive(return_counts=True)
    pieces = (sizes + block - 1) // block  # tiles of each block
    before = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    number = number.repeat_interleave(pieces)
    turn = torch.arange(len(number)) - (pieces.cumsum(0) - pieces).repeat_interleave(pieces)
    first = before[:-1].repeat_interleave(pieces) + turn * block  # [tiles]
    end = before[1:].repeat_interleave(pieces)
    query = first[:, None] + torch.arange(block)
    real = query < end[:, None]
    query = torch.where(real, query, first[:, None]) + which.start  # [tiles, block]
    tiles = Tiles(
        part.queries[query],
        part.frontier[query],
        number,
        Canvas(
            canvas.output.new_zeros(*query.shape, part.queries.shape[-1]),
            canvas.mass.new_full(query.shape, -torch.inf),
        ),
    )
    _tiles(part, drawn, tiles, regular=False)
    canvas.output[which] = tiles.canvas.output[real]
    canvas.mass[which] = tiles.canvas.mass[real]


def _tiles(part: Part, drawn: Drawn, tiles: Tiles, regular: bool) -> None:
    """All three sets of keys, a few tiles at a time, so that their results stay in the cache."""
    gathered = sum(end - first for first, end in drawn.bands if end - first < BAND)
    at_once = max(COPIED // (drawn.block * max(gathered, 1)), 8)
    for some in chunks(tiles.number, drawn.bands, at_once):
        few = tiles.some(some)
        few.canvas.put(*_own(part, drawn, few, regular))
        for output, mass in (*_bands(part, drawn, few), *_verticals(part, drawn, few)):
            few.canvas.join(output, mass)


def chunks(number: Tensor, bands: list[tuple[int, int]], at_once: int) -> Iterator[slice]:
    """Neighbouring tiles from which equally many diagonals lead to a block."""
    distances = torch.tensor([d for first, end in bands for d in range(first, end)])
    reach = torch.searchsorted(distances, number, right=True)
    _, sizes = reach.unique_consecutive(return_counts=True)
    start = 0
    for size in sizes.tolist():
        for first in range(start, start + size, at_once):
            yield slice(first, min(first + at_once, start + size))
        start += size


def _own(part: Part, drawn: Drawn, tiles: Tiles, regular: bool) -> tuple[Tensor, Tensor]:
    """Each tile against its own block."""
    rank = tiles.number[:, None] * drawn.block + torch.arange(drawn.block)  # [tiles, block]
    if regular:
        both = slice(int(rank[0, 0]), int(rank[-1, -1]) + 1)
        keys, values = (
            states[both].unflatten(0, rank.shape)[None] for states in (part.keys, part.values)
        )
        return _flat(attend(tiles.queries[None], keys, values, part.scale, causal=True))
    seen = rank[:, None] <= tiles.frontier[..., None]  # [tiles, block, block]
    keys, values = _rows(part, rank.clamp(max=len(part.keys) - 1))
    mask = additive(seen, part.queries.dtype)[None]
    return _flat(attend(tiles.queries[None], keys, values, part.scale, mask=mask))


def _bands(part: Part, drawn: Drawn, tiles: Tiles) -> Iterator[tuple[Tensor, Tensor]]:
    """The blocks on other diagonals: wide bands one by one, the rest gathered in one call."""
    nearest = int(tiles.number[0])
    single: list[int] = []
    for first, end in drawn.bands:
        end = min(end, nearest + 1)  # tiles of a chunk agree on the diagonals within reach
        if end - first >= BAND:
            yield _band(part, drawn, tiles, first, end)
        else:
            single += range(first, end)
    if single:
        number = tiles.number[:, None] - torch.tensor(single)  # [tiles, diagonals]
        rank = number[..., None] * drawn.block + torch.arange(drawn.block)
        yield _flat(attend(tiles.queries[None], *_rows(part, rank.flatten(1)), part.scale))


def _band(part: Part, drawn: Drawn, tiles: Tiles, first: int, end: int) -> tuple[Tensor, Tensor]:
    """Neighbouring diagonals: one stretch of keys for each tile."""
    begin = (tiles.number - end + 1) * drawn.block  # [tiles]
    width = (end - first) * drawn.block
    steps = begin.diff()
    if len(steps) and not bool((steps == drawn.block).all()):
        keys, values = _rows(part, begin[:, None] + torch.arange(width))
    else:
        keys, values = (
            _windows(states, int(begin[0]), drawn.block, len(begin), width)
            for states in (part.keys, part.values)
        )
    return _flat(attend(tiles.queries[None], keys, values, part.scale))


def _windows(states: Tensor, first: int, step: int, count: int, width: int) -> Tensor:
    """Overlapping stretches of rows, `[1, count, width, head_dim]`, a view."""
    along = states.stride(0)
    return states.as_strided(
        (1, count, width, states.shape[1]),
        (0, step * along, along, 1),
        states.storage_offset() + first * along,
    )


def _verticals(part: Part, drawn: Drawn, tiles: Tiles) -> Iterator[tuple[Tensor, Tensor]]:
    """Vertical lines, less those in blocks that a tile has seen already."""
    reached = int(torch.searchsorted(drawn.vertical, int(tiles.number[-1]) * drawn.block))
    rank = drawn.vertical[:reached]
    apart = tiles.number[:, None] - rank // drawn.block  # [tiles, lines]
    seen = (apart > 0) & ~drawn.seen[apart.clamp(min=0, max=len(drawn.seen) - 1)]
    rank, seen = rank[seen.any(0)], seen[:, seen.any(0)]
    if not len(rank):
        return
    shape = (1, len(seen), -1, -1)
    keys, values = (states[rank][None, None].expand(shape) for states in (part.keys, part.values))
    mask = None if bool(seen.all()) else additive(seen, part.queries.dtype)[None, :, None]
    output, mass = _flat(attend(tiles.queries[None], keys, values, part.scale, mask=mask))
    yield output, mass.masked_fill(~seen.any(1)[:, None], -torch.inf)


def _rows(part: Part, rank: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of each tile, `[1, tiles, keys, head_dim]`."""
    shape = (1, *rank.shape, -1)
    keys, values = (
        states.index_select(0, rank.flatten()).view(shape) for states in (part.keys, part.values)
    )
    return keys, values


def _flat(result: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return result[0][0], result[1][0]
