"""Sparse attention on CPUs: every pattern as tiles of gathered keys for torch's fused kernel."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..pairs import BlockIndex, GridIndex, Index, LineIndex
from ..plane import Plane, pick
from .partial import Backend, Partial, Reference, States

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
ROWS = 1024
"""Queries of one call that see everything."""
NEAR_ROWS = 256
"""Queries of one call for sinks and nearest keys, and most queries of a class's tile."""
COPIED = 16384
"""Keys that are gathered for one call, so that they stay in the cache."""


class Fused(Backend):
    """Gathers the keys of each tile of queries, runs torch's fused kernel on them, and merges.

    What the kernel does not take goes to the reference: other dtypes, values sized unlike keys.
    """

    name = "fused"

    def attend(
        self, states: States, plane: Plane, index: Index | None, heads: Tensor, into: Partial
    ) -> None:
        """Attends to the plane's pairs."""
        if not supports(states):
            Reference().attend(states, plane, index, heads, into)
            return
        blind = int((plane.frontier < 0).sum())
        slots, frontier = plane.queries[blind:], plane.frontier[blind:]
        if not len(slots) or not len(plane.keys):
            return
        if isinstance(index, BlockIndex):
            marks = index.marks
            alike: dict[Any, list[int]] = defaultdict(list)
            calls: dict[Any, list[list[int]]] = defaultdict(list)
            for place, head in enumerate(heads.tolist()):
                same = head // states.group, marks[place].numpy().tobytes()
                alike[index.sizes[place], same].append(place)
            for (size, _), places in alike.items():
                calls[size, len(places)].append(places)
            for (size, _), groups in calls.items():
                some = torch.tensor(groups)
                picked = marks[some[:, 0]]
                _blocks(states, plane, slots, frontier, picked, size, heads[some], into)
            return
        for place, head in enumerate(heads.tolist()):
            keys, values = (
                pick(part[head // states.group], plane.keys)
                for part in (states.keys, states.values)
            )
            queries = pick(states.queries[head], slots)
            number = heads[place : place + 1]
            row = PlaneHead(queries, keys, values, frontier, slots, number, states.scale, into)
            if isinstance(index, LineIndex):
                _lines(row, index, place)
            elif isinstance(index, GridIndex):
                _grid(row, index.take(torch.tensor([place])))
            else:
                row.dense(torch.arange(len(slots)))


def supports(states: States) -> bool:
    """Returns whether the kernel takes these states: on a CPU, of `DTYPES`, of one head size."""
    parts = (states.queries, states.keys, states.values)
    kinds = {(part.device.type, part.dtype, part.stride(-1), part.shape[-1]) for part in parts}
    device, dtype, stride, _ = kinds.pop()
    return not kinds and device == "cpu" and dtype in DTYPES and stride == 1


@dataclass(frozen=True, eq=False)
class PlaneHead:
    """One query head in a plane, without the queries that see no key.

    Attributes:
        queries: `[queries, head_dim]`.
        keys, values: by rank, `[keys, head_dim]`.
        frontier: of each query, at least 0, never falling, `[queries]`.
        slots: of each query in the prompt, `[queries]`.
        head: its number, `[1]`.
        scale: factor of the scores.
        into: where results go.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    frontier: Tensor
    slots: Tensor
    head: Tensor
    scale: float
    into: Partial

    def dense(self, which: Tensor) -> None:
        """Attends from some queries, `[picked]` ascending, to all that they may see.

        Keys that all queries of a call see pay a call of their own, without a mask; frontiers that
        rise by one need none at all.
        """
        for some in which.split(ROWS) if len(which) else ():
            seen_to = self.frontier[some, None]
            first, last = int(seen_to[0]), int(seen_to[-1])
            is_ramp = last - first + 1 == len(some) and bool((seen_to.diff(dim=0) == 1).all())
            begin = first if is_ramp or first > ROWS else 0
            before, rank = torch.arange(begin)[None], torch.arange(begin, last + 1)
            seen = None if is_ramp else (rank <= seen_to)[None]
            self.tiles(some[None], (before, None), (rank[None], seen), causal=is_ramp)

    def tiles(
        self,
        query: Tensor,
        *keys: tuple[Tensor, Tensor | None],
        real: Tensor | None = None,
        causal: bool = False,
    ) -> None:
        """Attends from tiles of queries, each to keys of its own.

        Args:
            query: places of the queries, `[tiles, queries]`.
            keys: ranks, `[tiles, keys]`, and which pairs count, `[tiles, queries or 1, keys]` bool,
                all by default. Of the first of these, every query sees some, if there are several.
            real: which of the queries are no repetition, `[tiles, queries]` bool; all by default.
            causal: query `i` of a tile sees the tile's last keys up to `i`.
        """
        queries = self.queries[query][None]
        result: tuple[Tensor, Tensor] | None = None
        for number, (rank, seen) in enumerate(keys, 1):
            if not rank.shape[1]:
                continue
            some_keys, some_values = (
                states.index_select(0, rank.flatten()).view(1, *rank.shape, -1)
                for states in (self.keys, self.values)
            )
            mask = None
            if seen is not None:
                mask = torch.zeros(seen.shape, dtype=queries.dtype).masked_fill_(~seen, -torch.inf)
                mask = mask.expand(-1, query.shape[1], -1)[None]
            made, sums = KERNEL(
                queries, some_keys, some_values, 0.0, causal and number == len(keys),
                attn_mask=mask, scale=self.scale,
            )  # fmt: skip
            if seen is not None:  # where a query sees nothing, the kernel's results mean nothing
                sums = sums.masked_fill(~seen.any(-1), -torch.inf)
            if result is not None:
                before, lse = result
                made = before.lerp(made.float(), torch.sigmoid(sums - lse)[..., None])
                sums = torch.logaddexp(lse, sums)
            result = made.float(), sums
        if result is None:
            return
        output, lse = result
        if real is None or bool(real.all()):
            query, output, lse = query.flatten(), output.flatten(1, 2), lse.flatten(1)
        else:
            query, output, lse = query[real], output[:, real], lse[:, real]
        self.into.add(self.head, self.slots[query], output, lse)


def tiles_of(group: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cuts queries into tiles of `size` whose queries share a group.

    Args:
        group: of each query, `[queries]`.

    Returns:
        places of the queries, filled up by repeating a tile's first one, `[tiles, size]`; which of
        them are no repetition; and the group of each tile, `[tiles]`.
    """
    order = group.argsort(stable=True)
    number, counts = group[order].unique_consecutive(return_counts=True)
    pieces = (counts + size - 1) // size  # tiles of each group
    which = torch.arange(len(number), device=group.device).repeat_interleave(pieces)
    turn = torch.arange(len(which), device=group.device) - (pieces.cumsum(0) - pieces)[which]
    end = counts.cumsum(0)[which, None]
    first = end - counts[which, None] + turn[:, None] * size
    place = first + torch.arange(size, device=group.device)
    real = place < end
    return order[torch.where(real, place, first)], real, number[which]


def _lines(row: PlaneHead, index: LineIndex, place: int) -> None:
    """Each block of queries against itself, then against its windows and the vertical lines."""
    frontier, block = row.frontier, index.block
    columns, covered = index.marks[place, :, : len(row.keys)]
    split = max(len(frontier) - int(index.bottom[place]), 0)
    row.dense(torch.arange(split, len(frontier)))
    if not split:
        return
    distances = covered.nonzero()[:, 0] + 1
    vertical = columns.nonzero()[:, 0]
    query, real, number = tiles_of(frontier[:split] // block, block)
    at_once = max(COPIED // (len(distances) + len(vertical) + block), 8)
    for some in torch.arange(len(number)).split(at_once):
        start = number[some, None] * block
        reach = int(start[-1])
        windows, columns = start - distances[distances <= reach], vertical[vertical < reach]
        apart = start - columns
        is_line = (apart > 0) & ~covered[(apart - 1).clamp(min=0)]
        rank = torch.cat([windows.clamp(min=0), columns.expand(len(some), -1)], 1)
        seen = torch.cat([windows >= 0, is_line], 1)
        used = seen.any(0)
        own = start + torch.arange(block)  # [tiles, keys]
        inside = own[:, None] <= frontier[query[some]][..., None]
        block_keys = (own.clamp(max=len(row.keys) - 1), inside)
        others = (rank[:, used], seen[:, None, used])
        row.tiles(query[some], block_keys, others, real=real[some])


def _grid(row: PlaneHead, index: GridIndex) -> None:
    """Horizontal lines, slash lines, and the rest; a pair on several is computed with the first."""
    stride, phase, hline, vline, slash, sink, local = (int(v) for v in vars(index).values())
    hline, vline = bool(hline), bool(vline)
    classes = row.frontier % stride
    is_alone = (classes == phase) & hline
    row.dense(is_alone.nonzero()[:, 0])
    others = (~is_alone).nonzero()[:, 0]
    if not len(others):
        return
    if slash:
        _classes(row, others, stride, phase if vline else None)
        if local <= 1 and not sink:
            return
    for some in others.split(NEAR_ROWS):
        seen_to = row.frontier[some]
        near = int(seen_to[0]) - local + 1
        rank = torch.arange(int(seen_to[-1]) + 1)
        is_line = (rank % stride == phase) & vline
        rank = rank[(rank >= near) | (rank < sink) | (is_line & (not slash))]
        seen = index.sees(seen_to[:, None], rank)
        if slash:
            seen &= (classes[some, None] != rank % stride) & ~is_line[rank]
        row.tiles(some[None], (rank[None], seen))


def _classes(row: PlaneHead, which: Tensor, stride: int, phase: int | None) -> None:
    """Some queries against the keys of their own classes modulo `stride`, and of class `phase`."""
    classes = row.frontier[which] % stride
    query, real, number = tiles_of(classes, min(int(classes.bincount().max()), NEAR_ROWS))
    query = which[query]
    count = row.frontier[query].amax(1) // stride + 1  # keys of each tile
    at_once = max(COPIED // int(count.max()), 1)
    for some in torch.arange(len(number)).split(at_once):
        steps = torch.arange(int(count[some].max())) * stride
        rank, seen_to = number[some, None] + steps, row.frontier[query[some]][..., None]
        seen = rank[:, None] <= seen_to
        if phase is not None:
            is_line = (phase + steps <= seen_to) & (number[some, None, None] != phase)
            rank = torch.cat([rank, (phase + steps).expand(len(some), -1)], 1)
            seen = torch.cat([seen, is_line], 2)
        row.tiles(query[some], (rank.clamp(max=len(row.keys) - 1), seen), real=real[some])


def _blocks(
    states: States, plane: Plane, slots: Tensor, frontier: Tensor, marks: Tensor, size: int,
    heads: Tensor, into: Partial,
) -> None:  # fmt: skip
    """Each tile of queries against the marked blocks, tiles of all heads in turns of equally many
    blocks, so that nothing but the own block needs a mask. Heads that share keys and marks share a
    tile: the kernel is faster with more queries, and keys are gathered once.

    Args:
        slots, frontier: of the queries that see a key.
        marks: of a `BlockIndex`, `[groups, blocks, blocks]`.
        heads: those of each group, `[groups, members]`.
    """
    query, _, number = tiles_of(frontier // size, size)  # [tiles, size], [tiles]
    tiles, count, dim = len(number), -(-len(plane.keys) // size), states.queries.shape[-1]
    keys, values = (
        pad(pick(part, plane.keys), (0, 0, 0, count * size - len(plane.keys)))
        .reshape(len(part) * count, size * dim)
        for part in (states.keys, states.values)
    )  # fmt: skip
    rank = number[:, None] * size + torch.arange(size)
    inside = rank[:, None] <= frontier[query][..., None]  # [tiles, queries, keys]
    mask = torch.zeros(inside.shape, dtype=keys.dtype).masked_fill_(~inside, -torch.inf)
    ramp = keys.new_full((1, size, size), -torch.inf).triu(1)
    is_ramp = (mask == ramp).all(2).all(1).tolist()
    chosen = marks[:, number].flatten(0, 1)  # [groups * tiles, blocks]
    sums = chosen.sum(1)
    order = sums.argsort(stable=True)
    for some in order.split(sums[order].unique_consecutive(return_counts=True)[1].tolist()):
        seen, turns = int(sums[some[0]]), heads.shape[1]
        ramps = pad(ramp.repeat(1, turns, 1), ((seen - 1) * size, 0))  # [1, queries, keys]
        for part in some.split(max(COPIED // (seen * size), 1)):
            members, tile = heads[part // tiles], part % tiles  # [tiles, members], [tiles]
            blocks = chosen[part].nonzero()[:, 1].view(len(part), seen)  # the own one is the last
            blocks += members[:, :1] // states.group * count
            tile_keys, tile_values = (
                whole.index_select(0, blocks.flatten()).view(len(part), 1, -1, dim)
                for whole in (keys, values)
            )
            places = slots[query[tile]][:, None]  # [tiles, 1, size]
            queries = states.queries[members[..., None], places].view(len(part), 1, -1, dim)
            own = ramps
            if not all(is_ramp[each] for each in tile.tolist()):
                own = pad(mask[tile].repeat(1, turns, 1), ((seen - 1) * size, 0))
            own = own.expand(len(part), -1, -1)[:, None]
            made, total = KERNEL(
                queries, tile_keys, tile_values, 0.0, False, attn_mask=own, scale=states.scale
            )
            places = places.expand(-1, turns, -1).flatten(0, 1)
            into.add(members.flatten(), places, made.view(-1, size, dim), total.view(-1, size))
