"""What a head computes: an index of (query, key) pairs as blocks, grids and lines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .plane import BLOCK, Plane

Places = slice | Tensor
"""Some of a plane's queries: a slice, or their places in it, `[queries]`."""


class Index:
    """Says which keys the queries of a plane see, per head: what patterns give and kernels take.

    An index holds a causal set, and the key at a query's frontier always belongs to it, so no
    query that may see anything sees nothing.
    """

    @property
    def heads(self) -> int:
        """Heads that it describes."""
        raise NotImplementedError

    def seen(self, head: int, plane: Plane, queries: Places = slice(None)) -> Tensor:
        """Returns which keys some of the plane's queries see, `[queries, keys]` bool."""
        picked = self.take(torch.tensor([head], device=plane.keys.device))
        return picked.seen_by_all(plane, queries)[0]

    def seen_by_all(self, plane: Plane, queries: Places) -> Tensor:
        """Returns which keys some of the queries see, `[heads, queries, keys]` bool."""
        raise NotImplementedError

    def pairs(self, plane: Plane) -> Tensor:
        """Query-key pairs that each head computes, counted exactly, `[heads]` int64."""
        raise NotImplementedError

    def take(self, heads: Tensor) -> Index:
        """Returns the index of some heads, in that order."""
        raise NotImplementedError


def causal(plane: Plane, queries: Places) -> tuple[Tensor, Tensor, Tensor]:
    """Frontiers `[queries, 1]`, ranks `[1, keys]`, and which pairs are causal."""
    frontier = plane.frontier[queries, None]
    rank = torch.arange(len(plane.keys), device=frontier.device)[None]
    return frontier, rank, rank <= frontier


def share(index: Index, plane: Plane) -> Tensor:
    """Returns share of the plane's causal pairs that each head computes, exact, `[heads]` fp64."""
    return index.pairs(plane).double() / max(plane.pairs, 1)


def spread(total: int, count: int, device: torch.device | str = "cpu", turn: float = 0.0) -> Tensor:
    """Returns `count` of `total` places, ascending: one in each of equal stretches, `[count]`.

    Where in its stretch goes by multiples of the golden ratio. Evenly spaced places would fall on
    the same class of every stride that divides their distance, and see grids all or not at all.

    Args:
        turn: shifts all of them inside their stretches, by a share: other places of the same kind.
    """
    if count >= total:
        return torch.arange(total, device=device)
    number = torch.arange(count, device=device, dtype=torch.float64)
    inside = (number * 0.6180339887498949 + turn) % 1
    return ((number + inside) * total / count).long().clamp(max=total - 1)


@dataclass(frozen=True, eq=False)
class GridIndex(Index):
    """Lines that return with a stride (MMInference, algorithm 1 and figure 8).

    Query and key see each other if any of these holds:

    - `hline` and `frontier % stride == phase`: the query's class sees everything;
    - `vline` and `rank % stride == phase`: the key's class is seen by everything;
    - `slash` and `frontier % stride == rank % stride`: queries see their own class;
    - `rank < sink`, or `frontier - rank < local`.

    Grouped by class, each of the first three is a block of dense causal attention.

    Attributes: all are `[heads]`; `phase` is below `stride`, and `local` is at least 1, so that a
        query sees its frontier.
    """

    stride: Tensor
    phase: Tensor
    hline: Tensor
    vline: Tensor
    slash: Tensor
    sink: Tensor
    local: Tensor

    @property
    def heads(self) -> int:
        return len(self.stride)

    def seen_by_all(self, plane: Plane, queries: Places) -> Tensor:
        frontier, rank, _ = causal(plane, queries)
        return self.sees(frontier, rank)

    def sees(self, frontier: Tensor, rank: Tensor) -> Tensor:
        """Returns which frontiers `[queries, 1]` see ranks `[keys]`, `[heads, queries, keys]`."""
        columns = (value[:, None, None] for value in vars(self).values())
        stride, phase, *flags, sink, local = columns
        hline, vline, slash = (flag.bool() for flag in flags)
        row, column = frontier % stride, rank % stride  # [heads, queries, 1], [heads, 1, keys]
        seen = (rank > frontier - local) | (rank < sink)
        seen = seen | (hline & (row == phase)) | (vline & (column == phase))
        if bool(slash.any()):
            seen |= slash & (row == column)
        return seen & (rank <= frontier)

    def pairs(self, plane: Plane) -> Tensor:
        """Returns query-key pairs that each head computes, exactly, `[heads]` int64.

        What a query sees is the ranks up to a sink, those from some rank on, and between the two
        the keys of one or two classes: all of these are counted without looking at a pair.
        """
        frontier = plane.frontier[plane.blind :]
        stride, phase, *flags, sink, local = (column[:, None] for column in vars(self).values())
        hline, vline, slash = (flag.bool() for flag in flags)
        near = (frontier - local + 1).clamp(min=0)  # first rank of the last stretch
        sink, own = torch.minimum(sink, near), frontier % stride

        def between(member: Tensor) -> Tensor:
            """Returns ranks of one class from `sink` up to `near`."""
            return (near - member + stride - 1) // stride - (sink - member + stride - 1) // stride

        is_phase = own == phase
        counts = sink + frontier + 1 - near + between(phase) * vline
        counts = counts + between(own) * (slash & ~(is_phase & vline))
        return torch.where(is_phase & hline, frontier + 1, counts).sum(1)

    def take(self, heads: Tensor) -> GridIndex:
        return GridIndex(*(values[heads] for values in vars(self).values()))


@dataclass(frozen=True, eq=False)
class BlockIndex(Index):
    """Blocks of keys that blocks of queries see whole.

    Queries whose frontiers lie in one block of ranks see the same blocks of keys, up to their
    frontiers: the own one, and any before it.

    Attributes:
        order: of each block of queries, all blocks of keys, those that it sees behind all others,
            `[heads, blocks, blocks]` int64.
        counts: how many it sees, `[heads, blocks]` int64.
        sizes: ranks of a block of each head.
    """

    order: Tensor
    counts: Tensor
    sizes: tuple[int, ...]

    @property
    def heads(self) -> int:
        return len(self.sizes)

    @property
    def size(self) -> Tensor:
        """Returns the sizes on the device, `[heads, 1]` int64."""
        return torch.tensor(self.sizes, device=self.order.device)[:, None]

    @property
    def marks(self) -> Tensor:
        """Returns which blocks of keys (last) those of queries see, `[heads, blocks, blocks]`."""
        count = self.order.shape[2]
        place = torch.arange(count, device=self.order.device)
        marks = torch.empty_like(self.order, dtype=torch.bool)
        return marks.scatter_(2, self.order, place >= count - self.counts[..., None])

    def seen_by_all(self, plane: Plane, queries: Places) -> Tensor:
        frontier, rank, seen = causal(plane, queries)
        row, column = frontier.mT.clamp(min=0) // self.size, rank // self.size
        head = torch.arange(self.heads, device=rank.device)[:, None, None]
        return self.marks[head, row[..., None], column[:, None]] & seen

    def pairs(self, plane: Plane) -> Tensor:
        """Returns query-key pairs that each head computes, exactly, `[heads]` int64."""
        frontier = plane.frontier[plane.blind :]
        before = (self.counts.gather(1, frontier // self.size) - 1) * self.size
        return (before + frontier % self.size + 1).sum(1)

    def take(self, heads: Tensor) -> BlockIndex:
        sizes = tuple(self.sizes[head] for head in heads.tolist())
        return BlockIndex(self.order[heads], self.counts[heads], sizes)

    @classmethod
    def of(cls, marks: Tensor, sizes: tuple[int, ...]) -> BlockIndex:
        """Returns the index of marks, among which own blocks have to be and none behind them."""
        return cls(marks.byte().argsort(2), marks.sum(2), sizes)


@dataclass(frozen=True, eq=False)
class LineIndex(Index):
    """Keys that everybody sees, and keys that move along with the query's block.

    Queries whose frontiers lie in one block of `block` ranks see the same keys before that block:
    those that a slash line needs for any of them. So a query and a key see each other if the key
    lies in the query's own block, on a vertical line, or `d` ranks before the first rank of the
    block with `covered[d - 1]`, causality always given. Every backend computes these pairs.

    A slash line at distance `d` needs, for a whole block, the `block` keys from `d` to `d - block +
    1` before it, and what is covered is the union over the lines. MInference's windows (Jiang et
    al. 2024, `convert_vertical_slash_indexes`) hold it, and more: where lines lie close together a
    window goes on for a whole block behind the last of them.

    Attributes:
        marks: which keys lie on vertical lines, by rank, and which are covered, by their distance
            from the block's first rank less one, `[heads, 2, keys]` bool; there may be more keys.
        bottom: how many of the plane's last queries see everything, `[heads]`.
        block: queries that share what is covered.
        bound: no head has more vertical lines, nor more covered distances.
    """

    marks: Tensor
    bottom: Tensor
    block: int = BLOCK
    bound: int = 0

    @property
    def heads(self) -> int:
        return self.marks.shape[0]

    def within(self, plane: Plane) -> tuple[Tensor, Tensor]:
        """Returns vertical lines and what is covered in a plane, each `[heads, keys]` bool."""
        columns, covered = self.marks[..., : len(plane.keys)].unbind(1)
        return columns, covered

    def seen_by_all(self, plane: Plane, queries: Places) -> Tensor:
        keys, (columns, covered) = len(plane.keys), self.within(plane)
        start = plane.frontier[queries].clamp(min=0) // self.block * self.block
        # By rank: what is covered from the far end to the near one, then the own block.
        by_rank = torch.cat([covered.flip(1), torch.ones_like(covered)], 1)
        seen = by_rank.unfold(1, keys, 1)[:, keys - start] if keys else by_rank[:, start]
        place = torch.arange(len(plane.queries), device=covered.device)[queries]
        last = place[:, None] >= len(plane.queries) - self.bottom[:, None, None]
        return (seen | columns[:, None] | last) & causal(plane, queries)[2]

    def pairs(self, plane: Plane) -> Tensor:
        """Returns query-key pairs that each head computes, exactly, `[heads]` int64."""
        frontier, last = plane.frontier[plane.blind :], len(plane.queries) - self.bottom[:, None]
        if not len(frontier):
            return torch.zeros_like(self.bottom)
        columns, covered = (marks.double() for marks in self.within(plane))
        # Keys that are on a vertical line and covered: a convolution, whose sums are whole numbers.
        sums = (torch.fft.rfft(part, n=2 * len(plane.keys)) for part in (columns, covered))
        twice = torch.fft.irfft(next(sums) * next(sums), n=2 * len(plane.keys))
        before = columns.cumsum(1) + covered.cumsum(1) - twice[:, : len(plane.keys)].round()
        before = torch.nn.functional.pad(before.long(), (1, 0))  # by the first rank of a block
        inside = frontier % self.block
        seen = before[:, frontier - inside] + inside + 1
        place = torch.arange(plane.blind, len(plane.queries), device=frontier.device)
        return torch.where(place >= last, frontier + 1, seen).sum(1)

    def take(self, heads: Tensor) -> LineIndex:
        return LineIndex(self.marks[heads], self.bottom[heads], self.block, self.bound)

    @classmethod
    def of(cls, marks: Tensor, bottom: Tensor, block: int, bound: int) -> LineIndex:
        """Returns the index of lines.

        Args:
            marks: vertical lines by rank and slash lines by distance, `[heads, 2, keys + block]`
                bool, with nothing behind the keys. It is written to.
        """
        keys = marks.shape[2] - block
        before = marks[:, 1].cumsum(1)  # lines up to each distance
        torch.gt(before[:, block:], before[:, :keys], out=marks[:, 1, :keys])
        return cls(marks[..., :keys], bottom, block, bound)

    @classmethod
    def build(
        cls,
        plane: Plane,
        vertical: list[Tensor],
        slash: list[Tensor],
        bottom: list[int],
        block: int = BLOCK,
    ) -> LineIndex:
        """Builds an index from each head's lines.

        Args:
            vertical: ranks, each `[lines]`, in any order.
            slash: distances `frontier - rank` of slash lines, each `[lines]`.
            bottom: last queries that see everything.
        """
        keys, device = len(plane.keys), plane.keys.device
        marks = torch.zeros(len(vertical), 2, keys + block, dtype=torch.bool, device=device)
        for mark, *lines in zip(marks, vertical, slash, strict=True):
            for row, ranks in zip(mark, lines, strict=True):
                row[ranks.to(device)] = True
        return cls.of(marks, torch.tensor(bottom, device=device), block, keys)
