"""A look at the last queries: the estimate from which dynamic patterns take their lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .plane import BLOCK, Plane, PlaneStack, pick

Kind = Literal["dense", "lines", "grid", "blocks"]

LAST = 64
HIDDEN = -1e30  # finite, so that a row without a key divides by something

FIRST, NEAR = 4, 64
"""First keys and nearest distances that are lines in any case: sinks, and the last words."""

SINK = 8  # first keys get attention for being first, which says nothing about a stride

SCORES, CACHED = 1 << 26, 1 << 19
"""Scores that exist at once, in fp32, on a GPU and on a CPU, which is faster with what its cache
holds; the heads of longer prompts are probed in pieces."""


@dataclass(frozen=True, eq=False)
class States:
    """The rotated states that one row has.

    Those of several rows have these in front, `[rows, heads, tokens, head_dim]`.

    Attributes:
        queries: `[heads, tokens, head_dim]`.
        keys, values: `[kv_heads, tokens, head_dim]`; query head `h` reads `h // group`.
        scale: factor of the scores.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    scale: float

    @property
    def group(self) -> int:
        """Returns the number of query heads that share a key head."""
        return self.queries.shape[-3] // self.keys.shape[-3]


class Role(NamedTuple):
    """What a head is probed for: its plane's number in a stack, its pattern's kind, its queries."""

    plane: int
    kind: Kind
    last: int


class ProbeRows(NamedTuple):
    """Says for each head which queries and keys the probe reads, and how its sums count.

    Heads of any planes have them by one gather, for they lie in one row of int64 each.

    Attributes:
        keys: slots by rank behind an empty column, `[heads, 1 + width]`.
        queries: slots, `[heads, queries]`. The first row shows nothing, nor do those that a plane
            lacks.
        frontier: of each query, -1 for rows that show nothing, `[heads, queries]`.
        turn: where in a head's weights, flat, distance 0 of each query lies, `[heads, queries]`.
        factors: what sums by key and by distance are multiplied by and what is added, then one over
            the plane's keys at each of them, `[heads, 5, width]` fp64.
        rank: of each column of scores, `[1 + width]`. No query sees the first one.
        lowest: what stands for a score that a query does not see, `[1 + width]`; finite in the
            empty column, on which rows without a key have all of their weight.
    """

    keys: Tensor
    queries: Tensor
    frontier: Tensor
    turn: Tensor
    factors: Tensor
    rank: Tensor
    lowest: Tensor

    @classmethod
    def of(cls, stack: PlaneStack, roles: tuple[Role, ...], picked: Tensor) -> ProbeRows:
        """Returns rows of heads that have some of the roles, `picked [heads]` among them."""
        queries, width = max(role.last for role in roles) + 1, stack.width
        if roles not in stack.cache:
            made = [_row(stack.planes[role.plane], role, width, queries) for role in roles]
            rank = pad(stack.rank[-width - BLOCK : -BLOCK], (1, 0), value=width)
            lowest = torch.where(rank < width, -torch.inf, HIDDEN)
            stack.cache[roles] = torch.stack(made), rank, lowest
        table, rank, lowest = stack.cache[roles]
        rows = table.expand(len(picked), -1) if len(roles) == 1 else table[picked]
        sizes = [width + 1, queries, queries, queries, 5 * width]
        keys, slots, frontier, turn, factors = rows.split(sizes, 1)
        factors = factors.view(torch.float64).unflatten(1, (5, width))
        return cls(keys, slots, frontier, turn, factors, rank, lowest)

    def weigh(self, sums: Tensor) -> Tensor:
        """Returns `[heads, 2, width]` fp64: sums without what says nothing about a pattern's lines.

        Lines that are there in any case count as infinite, padding counts less than nothing.
        """
        return torch.addcmul(self.factors[:, 2:4], sums, self.factors[:, :2])


def _row(plane: Plane, role: Role, width: int, queries: int) -> Tensor:
    """Returns the row of a plane's heads; see `ProbeRows`."""
    device, keys, blind = plane.keys.device, len(plane.keys), plane.blind
    last = min(role.last, len(plane.queries) - blind)
    end = len(plane.queries) - last
    slots, frontier = (
        pad(values[end:], (queries - last, 0), value=fill)
        for values, fill in ((plane.queries, 0), (plane.frontier, -1))
    )
    start = torch.arange(queries, device=device) * (width + 1)
    turn = start + torch.where(frontier < 0, width, frontier + 1)
    rank = torch.arange(width, device=device)
    if role.kind == "lines":
        always = torch.tensor([[FIRST], [NEAR]], device=device)
        addend = torch.where(rank < always, torch.inf, 0.0).masked_fill(rank >= keys, -1.0)
        factor = torch.ones_like(addend)
    else:
        begin = torch.tensor([[SINK], [1]], device=device)
        # The last columns are the probing queries' own neighbourhood.
        stop = torch.tensor([[keys - last], [keys]], device=device)
        factor = ((rank >= begin) & (rank < stop)).float()
        addend = torch.zeros_like(factor)
    share = (rank < keys).double() / max(keys, 1)
    floats = [part.double().flatten().view(torch.int64) for part in (factor, addend, share)]
    return torch.cat([pad(plane.keys, (1, width - keys)), slots, frontier, turn, *floats])


@dataclass(frozen=True, eq=False)
class Probe:
    """Attention that a plane's last queries pay to its keys, summed along lines, per head, in fp32.

    Each probing query spreads a probability of one, so sums are out of their number.

    Attributes:
        sums: probability on each key, and at each distance `frontier - rank`, `[heads, 2, keys]`.
        spread: entropy of each query's attention in nats, `[heads, queries]`: high where a query
            looks everywhere, as the horizontal lines of a grid do; `None` if nobody asked.
        rows: what was read.
    """

    sums: Tensor
    spread: Tensor | None
    rows: ProbeRows


@torch.no_grad()
def probe_rows(
    queries: Tensor,
    keys: Tensor,
    rows: ProbeRows,
    heads: Sequence[Tensor],
    kv_heads: Sequence[Tensor],
    scale: float,
    spread: bool,
) -> Probe:
    """Estimate attention from last queries (MMInference, algorithms 1 and 2), all heads at once.

    Args:
        queries: of the whole row, `[heads, tokens, head_dim]`, or of several.
        keys: `[kv_heads, tokens, head_dim]`, likewise.
        rows: what is read for each probed head.
        heads, kv_heads: indices of the dimensions in front of tokens, each `[probed]`.
        spread: whether entropies are measured, too.
    """
    count, (length, width) = len(heads[0]), (rows.queries.shape[1], len(rows.rank) - 1)
    sums = torch.empty(count, 2, width, device=queries.device)
    entropy = torch.empty(count, length, device=queries.device) if spread else None
    limit = CACHED if queries.device.type == "cpu" else SCORES
    at_once = max(limit // (length * (width + 1)), 1)
    for first in range(0, count, at_once):
        part = slice(first, first + at_once)
        some = queries[(*(each[part, None] for each in heads), rows.queries[part])]
        other = keys[(*(each[part, None] for each in kv_heads), rows.keys[part])]
        scores = torch.baddbmm(some.new_empty(1, 1, 1), some, other.mT, beta=0, alpha=scale)
        seen = rows.rank <= rows.frontier[part, :, None]
        weights = torch.where(seen, scores, rows.lowest).softmax(2)  # [probed, queries, 1 + width]
        torch.sum(weights[..., 1:], 1, out=sums[part, 0])
        # Backwards from its frontier a row's distances ascend. What lies before its first key is
        # the end of the row above, which that row does not see.
        turn = rows.turn[part, :, None] - rows.rank[1:]
        along = weights.flatten(1).gather(1, turn.flatten(1)).view(turn.shape)
        torch.sum(along, 1, out=sums[part, 1])
        if entropy is not None:
            torch.sum(torch.special.entr(weights), 2, out=entropy[part])
    return Probe(sums, entropy, rows)


def probe(
    queries: Tensor,
    keys: Tensor,
    plane: Plane,
    scale: float,
    heads: Tensor | None = None,
    last: int = LAST,
) -> Probe:
    """Returns the estimate of some heads in one plane, all heads by default, in their order."""
    if heads is None:
        heads = torch.arange(queries.shape[0], device=queries.device)
    group = queries.shape[0] // keys.shape[0]
    rows = ProbeRows.of(PlaneStack((plane,)), (Role(0, "lines", last),), heads)
    return probe_rows(queries, keys, rows, [heads], [heads // group], scale, spread=True)


class BlockCells(NamedTuple):
    """Heads in planes whose blocks are estimated alike.

    Attributes:
        size: ranks of a block.
        rows: queries of each block of queries.
        sink: first blocks that are seen in any case.
        cells: head and plane of each.
    """

    size: int
    rows: int
    sink: int
    cells: Sequence[tuple[int, int]]


def sampled_queries(plane: Plane, size: int, rows: int) -> Tensor:
    """Returns places of evenly spread queries of each block of frontiers, the last one among them.

    Blocks of fewer queries repeat some, and those of none have -1, `[blocks, rows]`.
    """
    device = plane.keys.device
    first = torch.arange(0, len(plane.keys), size, device=device)
    begin, end = (
        torch.searchsorted(plane.frontier, edge)[:, None] for edge in (first, first + size)
    )
    step = torch.arange(rows, device=device)
    return torch.where(end > begin, end - 1 - step * (end - begin) // rows, -1)


def block_count(stack: PlaneStack, groups: Sequence[BlockCells]) -> int:
    """Returns the most blocks that a plane has."""
    return -(-stack.width // min(group.size for group in groups))


@torch.no_grad()
def estimate_blocks(
    states: States, stack: PlaneStack, groups: Sequence[BlockCells], table: Tensor
) -> Tensor:
    """Returns attention that sampled queries of each block pay to each block of keys.

    Each sampled query spreads a probability of one. Blocks that are seen in any case, the own one
    and sinks before it, count as infinite.

    Args:
        table: heads and planes of all cells on the device, for kernels, `[2, cells]` int64.

    Returns:
        `[cells, blocks of queries, blocks of keys]` fp32, of all groups in their order.
    """
    count = block_count(stack, groups)
    sums, place = torch.zeros(table.shape[1], count, count, device=table.device), 0
    parts = states.queries, states.keys
    queries, keys = (part[None] if part.dim() == 3 else part for part in parts)
    for group in groups:
        shared = groupby(group.cells, key=lambda cell: (cell[1], cell[0] // states.group))
        for (number, key), cells in shared:
            row, kv_head = divmod(key, keys.shape[1])
            heads = table.new_tensor([head % queries.shape[1] for head, _ in cells])
            into = sums[place : place + len(heads)]
            plane, some = stack.planes[number], keys[row, kv_head]
            _estimate(queries[row], some, states.scale, plane, heads, group, into)
            place += len(heads)
    return sums


def _estimate(
    queries: Tensor, keys: Tensor, scale: float, plane: Plane, heads: Tensor, group: BlockCells,
    sums: Tensor,
) -> None:  # fmt: skip
    """Writes the estimate of heads that share keys; scores beyond the frontiers are not computed.

    Args:
        queries: of all heads, `[heads, tokens, head_dim]`.
        keys: `[tokens, head_dim]`.
    """
    size, rows = group.size, group.rows
    sample = sampled_queries(plane, size, rows)
    present = (sample[:, 0] >= 0).nonzero()[:, 0]
    keys = pick(keys, plane.keys)
    keys = pad(keys, (0, 0, 0, -len(keys) % size)).mT  # [head_dim, whole blocks]
    rank = torch.arange(keys.shape[1], device=keys.device)
    ones = torch.ones(size, device=keys.device)
    limit = CACHED if keys.device.type == "cpu" else SCORES
    at_once = max(limit // (len(heads) * rows * len(rank)), 1)
    for some in present.split(at_once) if len(present) else ():
        place = sample[some].flatten()
        frontier = plane.frontier[place][:, None]
        begin, end = int(some[0]) * size, (int(some[-1]) + 1) * size
        some_queries = queries[heads[:, None], plane.queries[place]] * scale
        scores = (some_queries @ keys[:, :end]).float()
        scores[..., begin:].masked_fill_(rank[begin:end] > frontier, -torch.inf)
        scores.sub_(scores.amax(2, keepdim=True)).exp_()
        weights = (scores.view(-1, size) @ ones).view(len(heads), len(some), rows, -1)
        weights /= weights.sum(3, keepdim=True)
        block, own = rank[: end // size], some[:, None]
        always = (block == own) | ((block < group.sink) & (block < own))
        sums[:, some, : end // size] = weights.sum(2).masked_fill(always, torch.inf)
