"""What a head computes: an index of (query, key) pairs as blocks, grids and lines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .plane import Plane

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
    - `segment` and both lie in the same stretch of `stride` ranks that begins at `phase`;
    - `rank < sink`, or `frontier - rank < local`.

    Grouped by class, each of the first three is a block of dense causal attention.

    Attributes: all are `[heads]`; `local` is at least 1, so that a query sees its frontier.
    """

    stride: Tensor
    phase: Tensor
    hline: Tensor
    vline: Tensor
    slash: Tensor
    segment: Tensor
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
        stride, phase, hline, vline, slash, segment, sink, local = columns
        row, column = frontier % stride, rank % stride  # [heads, queries, 1], [heads, 1, keys]
        seen = (rank > frontier - local) | (rank < sink)
        seen = seen | (hline & (row == phase)) | (vline & (column == phase))
        if bool(slash.any()):
            seen |= slash & (row == column)
        if bool(segment.any()):
            seen |= segment & ((frontier - phase) // stride == (rank - phase) // stride)
        return seen & (rank <= frontier)

    def pairs(self, plane: Plane) -> Tensor:
        """Returns query-key pairs that each head computes, exactly, `[heads]` int64.

        What a query sees is the ranks up to a sink, those from some rank on, and between the two
        the keys of one or two classes: all of these are counted without looking at a pair.
        """
        frontier = plane.frontier[plane.frontier >= 0]
        return torch.stack([self._counts(head, frontier).sum() for head in range(self.heads)])

    def _counts(self, head: int, frontier: Tensor) -> Tensor:
        """Keys that a head's queries see, `[queries]`."""
        stride, phase = int(self.stride[head]), int(self.phase[head])
        near = frontier - self.local[head] + 1  # first rank of the last stretch
        if self.segment[head]:
            near = torch.minimum(near, frontier - (frontier - phase) % stride)
        near = near.clamp(min=0)
        sink = torch.minimum(self.sink[head], near)
        counts = sink + frontier + 1 - near

        def between(member: Tensor | int) -> Tensor:
            """Returns ranks of one class from `sink` up to `near`."""
            return (near - member + stride - 1) // stride - (sink - member + stride - 1) // stride

        query_phase = frontier % stride
        if self.vline[head]:
            counts = counts + between(phase)
        if self.slash[head]:
            lies_on_it = (query_phase == phase) & self.vline[head]
            counts = counts + torch.where(lies_on_it, 0, between(query_phase))
        if self.hline[head]:
            counts = torch.where(query_phase == phase, frontier + 1, counts)
        return counts

    def take(self, heads: Tensor) -> GridIndex:
        return GridIndex(*(values[heads] for values in vars(self).values()))


AT_ONCE = 1 << 22
"""Pairs of blocks and vertical lines that are looked up at once when pairs are counted."""


@dataclass(frozen=True, eq=False)
class LineIndex(Index):
    """Keys that everybody sees, and windows of keys that move along with the query's block.

    Queries whose frontiers lie in one block of `block` ranks see the same keys before that block:
    those in windows of `block` keys each, which `windows` places over the slash lines. So a query
    and a key see each other if the key lies in the query's own block, on a vertical line, or `d`
    ranks before the first rank of the block with `covered[d - 1]`, causality always given. Every
    backend computes these pairs.

    Attributes:
        vertical: ranks of keys that every later query sees, ascending, padded at the end with the
            number of keys, `[heads, lines]`.
        covered: which keys before a block its queries see, by their distance from the block's
            first rank less one, `[heads, keys]` bool.
        bottom: how many of the plane's last queries see everything, `[heads]`.
        block: queries that share their windows, and keys of a window.
    """

    vertical: Tensor
    covered: Tensor
    bottom: Tensor
    block: int = 64

    @property
    def heads(self) -> int:
        return self.vertical.shape[0]

    def seen_by_all(self, plane: Plane, queries: Places) -> Tensor:
        keys, device = len(plane.keys), self.covered.device
        start = plane.frontier[queries].clamp(min=0) // self.block * self.block
        # By rank: the windows from the far end to the near one, then the own block.
        by_rank = torch.cat([self.covered.flip(1), torch.ones_like(self.covered)], 1)
        seen = by_rank.unfold(1, keys, 1)[:, keys - start] if keys else by_rank[:, start]
        columns = torch.stack([self.columns(head, keys) for head in range(self.heads)])
        place = torch.arange(len(plane.queries), device=device)[queries]
        last = place[:, None] >= len(plane.queries) - self.bottom[:, None, None]
        return (seen | columns[:, None] | last) & causal(plane, queries)[2]

    def columns(self, head: int, keys: int) -> Tensor:
        """Returns which keys lie on a vertical line of `head`, `[keys]` bool."""
        seen = torch.zeros(keys + 1, dtype=torch.bool, device=self.vertical.device)
        seen[self.vertical[head]] = True
        return seen[:-1]

    def pairs(self, plane: Plane) -> Tensor:
        """Returns query-key pairs that each head computes, exactly, `[heads]` int64."""
        place = torch.arange(len(plane.queries), device=plane.keys.device)
        frontier, keys = plane.frontier, len(plane.keys)
        first = torch.arange(0, keys, self.block, device=place.device)  # of each block
        result = []
        for head in range(self.heads):
            bottom = place >= len(place) - self.bottom[head]
            above = frontier[(frontier >= 0) & ~bottom]
            diagonal = (above % self.block + 1).sum()
            each = torch.bincount(above // self.block, minlength=len(first))
            before = (each * self._before(head, first)).sum()
            result.append((frontier[bottom] + 1).sum() + diagonal + before)
        return torch.stack(result)

    def _before(self, head: int, first: Tensor) -> Tensor:
        """Keys before each block that its queries see, `[blocks]`."""
        covered = self.covered[head]
        windows = torch.nn.functional.pad(covered.cumsum(0), (1, 0))[first]
        columns = self.columns(head, len(covered)).nonzero()[:, 0]
        lines = []
        for starts in first.split(max(AT_ONCE // max(len(columns), 1), 1)):
            apart = starts[:, None] - columns  # [blocks, lines]
            lines.append(((apart > 0) & ~covered[(apart - 1).clamp(min=0)]).sum(1))
        return windows + torch.cat(lines) if lines else windows

    def take(self, heads: Tensor) -> LineIndex:
        return LineIndex(self.vertical[heads], self.covered[heads], self.bottom[heads], self.block)

    @classmethod
    def build(
        cls,
        plane: Plane,
        vertical: list[Tensor],
        slash: list[Tensor],
        bottom: list[int],
        block: int = 64,
    ) -> LineIndex:
        """Builds an index from each head's lines.

        Args:
            vertical: ranks, each `[lines]`, in any order.
            slash: distances `frontier - rank` of slash lines, each `[lines]`.
            bottom: last queries that see everything.
        """
        keys, device = len(plane.keys), plane.keys.device
        width = max((len(lines) for lines in vertical), default=0)
        columns = torch.full((len(vertical), width), keys, device=device)
        for head, ranks in enumerate(vertical):
            columns[head, : len(ranks)] = ranks.to(device).sort().values
        covered = _covered(slash, keys, block).to(device)
        return cls(columns, covered, torch.tensor(bottom, device=device), block)


def windows(distances: list[int], block: int) -> list[int]:
    """Returns where MInference puts windows over slash lines, the farthest first.

    A window at distance `d` holds, for a block of queries that ends before rank `e`, the `block`
    keys from `e - d - block` on: all that a slash line at `d` needs, and no key more. A line that
    is not further than `block` behind the last window extends it by a whole window, as in
    `convert_vertical_slash_indexes` of MInference's code (Jiang et al. 2024). Windows are the same
    for every block of queries and end where the prompt begins; MInference's start anew there.

    Args:
        distances: of slash lines, in any order.
    """
    result: list[int] = []
    for apart in sorted(set(distances), reverse=True):
        if not result or result[-1] - apart > block:
            result.append(apart)
        elif apart < result[-1]:
            result.append(result[-1] - block)
    return result


def _covered(slash: list[Tensor], keys: int, block: int) -> Tensor:
    """Returns which keys before a block lie in its windows, `[heads, keys]`; see `LineIndex`."""
    distances = torch.cat(slash).tolist() if slash else []  # one answer for all heads
    rows, ends, used = [], [], 0
    for head, lines in enumerate(slash):
        placed = windows(distances[used : used + len(lines)], block)
        used += len(lines)
        rows += [head] * len(placed)
        ends += placed
    # A window at `d` holds the keys from `d - block + 1` to `d` before the block; none are behind.
    end = torch.tensor(ends, dtype=torch.long).clamp(0, keys)
    start = (torch.tensor(ends, dtype=torch.long) - block).clamp(0, keys)
    edges = torch.zeros(len(slash), keys + 1, dtype=torch.int32)
    ones = torch.ones_like(end, dtype=torch.int32)
    row = torch.tensor(rows, dtype=torch.long)
    edges.index_put_((row, start), ones, accumulate=True)
    edges.index_put_((row, end), -ones, accumulate=True)
    return edges.cumsum(1)[:, :keys] > 0
