"""Line heads: windows of keys as batches of tiles, vertical lines as keys of every tile.

A tile is up to `block` queries with frontiers in one block. It sees three disjoint sets of keys:
its own block, the windows before it, and the vertical lines outside of all those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ...pairs import LineIndex
from ...plane import Plane
from ..partial import Partial, States
from .canvas import Accumulator, HeadStates, additive, attend, parts

COPIED = 4096  # keys that are gathered at a time, so that they stay in the cache
BAND = 192  # keys of joined windows from which on they are read in place


@dataclass(frozen=True, eq=False)
class QueryTiles:
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
    canvas: Accumulator

    def some(self, which: slice) -> QueryTiles:
        canvas = Accumulator(self.canvas.output[which], self.canvas.lse[which])
        return QueryTiles(self.queries[which], self.frontier[which], self.number[which], canvas)


@dataclass(frozen=True, eq=False)
class HeadLines:
    """The entry that one head has in a `LineIndex`.

    Attributes:
        vertical: ranks, ascending, `[lines]`.
        covered: as in the index, `[keys]` bool.
        wide: runs of covered keys before a block that are read in place, as `(first, end)`
            distances from the block's first rank, ascending.
        narrow: distances of all other covered keys, ascending, `[keys]`.
        block: queries of a tile.
    """

    vertical: Tensor
    covered: Tensor
    wide: list[tuple[int, int]]
    narrow: Tensor
    block: int

    @classmethod
    def of(cls, index: LineIndex, place: int, keys: int) -> HeadLines:
        vertical, covered = index.vertical[place], index.covered[place]
        edges = covered.int().diff(prepend=covered.new_zeros(1), append=covered.new_zeros(1))
        starts, ends = ((edges == sign).nonzero()[:, 0] + 1 for sign in (1, -1))
        runs = zip(starts.tolist(), ends.tolist(), strict=True)
        wide = [(first, end) for first, end in runs if end - first >= BAND]
        rest = covered.clone()
        for first, end in wide:
            rest[first - 1 : end - 1] = False
        narrow = rest.nonzero()[:, 0] + 1
        return cls(vertical[vertical < keys], covered, wide, narrow, index.block)


def lines(states: States, plane: Plane, index: LineIndex, heads: Tensor, into: Partial) -> None:
    """Attends to vertical lines and windows of a plane."""
    for place, part, canvas in parts(states, plane, heads, into):
        split = max(len(part) - int(index.bottom[place]), 0)
        drawn = HeadLines.of(index, place, len(part.keys))
        if split:
            _above(part, drawn, split, canvas)
        bottom = slice(split, None)
        stairs = part.stairs(bottom, part.frontier[bottom] + 1, slice(None))
        for chunk, output, lse in stairs.climb(2048):
            canvas.rows(bottom).rows(chunk).put(output[0, 0], lse[0, 0])


def _above(part: HeadStates, drawn: HeadLines, split: int, canvas: Accumulator) -> None:
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


def _in_place(
    part: HeadStates, drawn: HeadLines, first: int, whole: int, canvas: Accumulator
) -> QueryTiles:
    """Returns full tiles of a ramp, from query `first` on, as views."""
    which, shape = slice(first, first + whole * drawn.block), (whole, drawn.block)
    seen = canvas.rows(which)
    frontier = part.frontier[which].unflatten(0, shape)
    return QueryTiles(
        part.queries[which].unflatten(0, shape),
        frontier,
        frontier[:, 0] // drawn.block,
        Accumulator(seen.output.unflatten(0, shape), seen.lse.unflatten(0, shape)),
    )


def _gathered(part: HeadStates, drawn: HeadLines, which: slice, canvas: Accumulator) -> None:
    """Tiles of any frontier, filled up by repeating their first query."""
    block = drawn.block
    blocks = part.frontier[which] // block
    number, sizes = blocks.unique_consecutive(return_counts=True)
    pieces = (sizes + block - 1) // block  # tiles of each block
    before = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    number = number.repeat_interleave(pieces)
    turn = torch.arange(len(number)) - (pieces.cumsum(0) - pieces).repeat_interleave(pieces)
    first = before[:-1].repeat_interleave(pieces) + turn * block  # [tiles]
    end = before[1:].repeat_interleave(pieces)
    query = first[:, None] + torch.arange(block)
    real = query < end[:, None]
    query = torch.where(real, query, first[:, None]) + which.start  # [tiles, block]
    tiles = QueryTiles(
        part.queries[query],
        part.frontier[query],
        number,
        Accumulator(
            canvas.output.new_zeros(*query.shape, part.queries.shape[-1]),
            canvas.lse.new_full(query.shape, -torch.inf),
        ),
    )
    _tiles(part, drawn, tiles, regular=False)
    canvas.output[which] = tiles.canvas.output[real]
    canvas.lse[which] = tiles.canvas.lse[real]


def _tiles(part: HeadStates, drawn: HeadLines, tiles: QueryTiles, regular: bool) -> None:
    """All three sets of keys, a few tiles at a time, so that their results stay in the cache."""
    at_once = max(COPIED // max(len(drawn.narrow), 1), 8)
    for some in chunks(tiles.number * drawn.block, drawn, at_once):
        few = tiles.some(some)
        few.canvas.put(*_block_attention(part, drawn, few, regular))
        for output, lse in (*_windows(part, drawn, few), *_verticals(part, drawn, few)):
            few.canvas.merge(output, lse)


def chunks(start: Tensor, drawn: HeadLines, at_once: int) -> Iterator[slice]:
    """Yields neighbouring tiles that have equally many keys in every run of windows.

    Args:
        start: first rank of each tile's own block, never falling, `[tiles]`.
    """
    reach = torch.searchsorted(drawn.narrow, start, right=True)
    for first, end in drawn.wide:
        reach = reach + start.clamp(first - 1, end - 1)
    _, sizes = reach.unique_consecutive(return_counts=True)
    begin = 0
    for size in sizes.tolist():
        for first in range(begin, begin + size, at_once):
            yield slice(first, min(first + at_once, begin + size))
        begin += size


def _block_attention(
    part: HeadStates, drawn: HeadLines, tiles: QueryTiles, regular: bool
) -> tuple[Tensor, Tensor]:
    """Returns each tile against its own block."""
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


def _windows(
    part: HeadStates, drawn: HeadLines, tiles: QueryTiles
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the keys before the own block: long runs one by one, all others gathered in
    one call.
    """
    start = tiles.number * drawn.block  # [tiles]
    nearest = int(start[0])  # tiles of a chunk agree on the keys within reach
    for first, end in drawn.wide:
        if first <= nearest:
            yield _run(part, drawn, tiles, first, min(end, nearest + 1))
    narrow = drawn.narrow[: int(torch.searchsorted(drawn.narrow, nearest, right=True))]
    if len(narrow):
        rank = start[:, None] - narrow  # [tiles, keys]
        yield _flat(attend(tiles.queries[None], *_rows(part, rank), part.scale))


def _run(
    part: HeadStates, drawn: HeadLines, tiles: QueryTiles, first: int, end: int
) -> tuple[Tensor, Tensor]:
    """Returns joined windows: one stretch of keys for each tile."""
    begin, width = tiles.number * drawn.block - end + 1, end - first  # [tiles]
    steps = begin.diff()
    if len(steps) and not bool((steps == drawn.block).all()):
        keys, values = _rows(part, begin[:, None] + torch.arange(width))
    else:
        keys, values = (
            _stretches(states, int(begin[0]), drawn.block, len(begin), width)
            for states in (part.keys, part.values)
        )
    return _flat(attend(tiles.queries[None], keys, values, part.scale))


def _stretches(states: Tensor, first: int, step: int, count: int, width: int) -> Tensor:
    """Returns overlapping stretches of rows, `[1, count, width, head_dim]`, a view."""
    along = states.stride(0)
    return states.as_strided(
        (1, count, width, states.shape[1]),
        (0, step * along, along, 1),
        states.storage_offset() + first * along,
    )


def _verticals(
    part: HeadStates, drawn: HeadLines, tiles: QueryTiles
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields vertical lines, less the keys that a tile has seen already."""
    reached = int(torch.searchsorted(drawn.vertical, int(tiles.number[-1]) * drawn.block))
    rank = drawn.vertical[:reached]
    apart = tiles.number[:, None] * drawn.block - rank  # [tiles, lines]
    seen = (apart > 0) & ~drawn.covered[(apart - 1).clamp(min=0)]
    rank, seen = rank[seen.any(0)], seen[:, seen.any(0)]
    if not len(rank):
        return
    shape = (1, len(seen), -1, -1)
    keys, values = (states[rank][None, None].expand(shape) for states in (part.keys, part.values))
    mask = None if bool(seen.all()) else additive(seen, part.queries.dtype)[None, :, None]
    output, lse = _flat(attend(tiles.queries[None], keys, values, part.scale, mask=mask))
    yield output, lse.masked_fill(~seen.any(1)[:, None], -torch.inf)


def _rows(part: HeadStates, rank: Tensor) -> tuple[Tensor, Tensor]:
    """Returns keys and values of each tile, `[1, tiles, keys, head_dim]`."""
    shape = (1, *rank.shape, -1)
    keys, values = (
        states.index_select(0, rank.flatten()).view(shape) for states in (part.keys, part.values)
    )
    return keys, values


def _flat(result: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return result[0][0], result[1][0]
