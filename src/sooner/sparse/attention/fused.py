"""Sparse attention on CPUs: every pattern as tiles of gathered keys for torch's fused kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..pairs import GridIndex, Index, LineIndex
from ..plane import Plane, pick
from .partial import Partial, States
from .reference import Reference

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROWS = 1024
"""Queries of one call whose keys stand in a row; before them, as many keys pay a call of their own,
without a mask."""
NEAR_ROWS = 256
"""Queries of one call for sinks, segments and nearest keys, and most queries of a class's tile."""
COPIED = 16384
"""Keys that are gathered for one call, so that they stay in the cache."""


class Fused:
    """Gathers the keys of each tile of queries, runs torch's fused kernel on them, and merges.

    States that the kernel does not take go to the reference: other dtypes, values of another size
    than the keys.
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
        for kv_head in (heads // states.group).unique().tolist():
            keys, values = (
                pick(part[kv_head], plane.keys) for part in (states.keys, states.values)
            )
            places = (heads // states.group == kv_head).nonzero()[:, 0]
            for some in places[None] if index is None else places[:, None]:
                queries = pick(states.queries[heads[some]], slots)
                part = PlaneHeads(
                    queries, keys, values, frontier, slots, heads[some], states.scale, into
                )
                if isinstance(index, LineIndex):
                    _lines(part, index, int(some))
                elif isinstance(index, GridIndex):
                    _grid(part, *(values[some].item() for values in vars(index).values()))
                else:
                    part.stairs(torch.arange(len(slots)), keys, values, frontier + 1)


def supports(states: States) -> bool:
    """Returns whether the kernel takes these states: CPU, a dtype of `DTYPES`, one head size for
    all.
    """
    parts = (states.queries, states.keys, states.values)
    return all(
        part.device.type == "cpu"
        and part.dtype == states.queries.dtype
        and part.shape[-1] == states.queries.shape[-1]
        and part.stride(-1) == 1
        for part in parts
    ) and (states.queries.dtype in DTYPES)


@dataclass(frozen=True, eq=False)
class PlaneHeads:
    """Query heads of one key head in a plane, without the queries that see no key.

    Attributes:
        queries: `[heads, queries, head_dim]`.
        keys, values: by rank, `[keys, head_dim]`.
        frontier: of each query, at least 0, never falling, `[queries]`.
        slots: of each query in the prompt, `[queries]`.
        heads: their numbers, `[heads]`.
        scale: factor of the scores.
        into: where results go.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    frontier: Tensor
    slots: Tensor
    heads: Tensor
    scale: float
    into: Partial

    def stairs(self, which: Tensor, keys: Tensor, values: Tensor, counts: Tensor) -> None:
        """Attends from some queries to the first `counts` of some keys.

        Args:
            which: queries, `[picked]`.
            keys, values: `[seen, head_dim]`.
            counts: keys that each query sees, at least 1, never falling, `[picked]`.
        """
        if not len(which):
            return
        shape = (1, len(self.heads), -1, -1)
        for chunk, some in zip(which.split(ROWS), counts.split(ROWS), strict=True):
            low, high = int(some[0]), int(some[-1])
            queries = pick(self.queries, chunk)[None]
            # One key that all see stands at the steps, too, so that no query is blind there.
            first = low - 1 if low > ROWS else 0
            is_ramp = high - low + 1 == len(some) and bool((some.diff() == 1).all())
            if is_ramp:
                first = low - 1
            for begin, end in ((0, first), (first, high)):
                if begin == end:
                    continue
                causal = is_ramp and end == high
                mask = None
                if end == high and not is_ramp and low < high:
                    seen = torch.arange(first, high) < some[:, None]
                    mask = additive(seen, queries.dtype)[None, None]
                some_keys, some_values = (
                    states[begin:end].expand(shape) for states in (keys, values)
                )
                output, lse = attend(queries, some_keys, some_values, self.scale, causal, mask)
                self.into.add(self.heads, self.slots[chunk], output[0], lse[0])

    def tiles(self, query: Tensor, real: Tensor, *keys: tuple[Tensor, Tensor]) -> None:
        """Attends from tiles of queries, each to keys of its own; for one head.

        Args:
            query: places of the queries, `[tiles, queries]`.
            real: which of them are no repetition, `[tiles, queries]` bool.
            keys: ranks, `[tiles, keys]`, and which of them count, `[tiles, queries or 1, keys]`
                bool. Of the first of these, every query sees some, if there are several.
        """
        queries = self.queries[0][query][None]
        output, lse = torch.empty(0), torch.empty(0)
        for number, (rank, seen) in enumerate(keys):
            if not rank.shape[1]:
                continue
            shape = (1, *rank.shape, -1)
            some_keys, some_values = (
                states.index_select(0, rank.flatten()).view(shape)
                for states in (self.keys, self.values)
            )
            mask = None if bool(seen.all()) else additive(seen, queries.dtype)[None]
            made, sums = attend(queries, some_keys, some_values, self.scale, mask=mask)
            sums = sums[0].masked_fill(~seen.any(-1), -torch.inf)
            if number == 0:
                output, lse = made[0].float(), sums
            else:
                output = output.lerp(made[0].float(), torch.sigmoid(sums - lse)[..., None])
                lse = torch.logaddexp(lse, sums)
        if bool(real.all()):
            query, output, lse = query.flatten(), output.flatten(0, 1), lse.flatten()
        else:
            query, output, lse = query[real], output[real], lse[real]
        self.into.add(self.heads, self.slots[query], output[None], lse[None])


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    causal: bool = False,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns attention and its log-sum-exp; strides of any kind but the last dimension's are free.

    Args:
        queries: `[batch, heads, queries, head_dim]`, at least one query.
        keys, values: `[batch, heads, keys, head_dim]`, at least one key.
        causal: query `i` sees the keys up to `i`, whatever their number.
        mask: added to the scores, in the dtype of the queries, `[batch, heads, queries, keys]` or
            what expands to it. Where a query sees nothing, the results mean nothing.

    Returns:
        output `[batch, heads, queries, head_dim]` and log-sum-exp `[batch, heads, queries]`.
    """
    if mask is not None:
        mask = mask.expand(*queries.shape[:3], keys.shape[2])
    output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        queries, keys, values, 0.0, causal, attn_mask=mask, scale=scale
    )
    return output, lse


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the mask that leaves only what is seen."""
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)


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
    which = torch.arange(len(number)).repeat_interleave(pieces)
    turn = torch.arange(len(which)) - (pieces.cumsum(0) - pieces)[which]
    end = counts.cumsum(0)[which, None]
    first = end - counts[which, None] + turn[:, None] * size
    place = first + torch.arange(size)
    real = place < end
    return order[torch.where(real, place, first)], real, number[which]


def _lines(part: PlaneHeads, index: LineIndex, place: int) -> None:
    """Each block of queries against itself, then against its windows and the vertical lines."""
    frontier, block, covered = part.frontier, index.block, index.covered[place]
    split = max(len(frontier) - int(index.bottom[place]), 0)
    bottom = torch.arange(split, len(frontier))
    part.stairs(bottom, part.keys, part.values, frontier[bottom] + 1)
    if not split:
        return
    distances = covered.nonzero()[:, 0] + 1
    vertical = index.vertical[place]
    query, real, number = tiles_of(frontier[:split] // block, block)
    at_once = max(COPIED // (len(distances) + len(vertical) + 1), 8)
    for some in torch.arange(len(number)).split(at_once):
        tile, start = (query[some], real[some]), number[some, None] * block
        own = start + torch.arange(block)  # [tiles, keys]
        near = own.clamp(max=len(part.keys) - 1)
        block_seen = own[:, None] <= frontier[query[some]][..., None]
        reach = int(start[-1])
        windows, columns = start - distances[distances <= reach], vertical[vertical < reach]
        apart = start - columns
        is_line = (apart > 0) & ~covered[(apart - 1).clamp(min=0)]
        rank = torch.cat([windows.clamp(min=0), columns.expand(len(some), -1)], 1)
        seen = torch.cat([windows >= 0, is_line], 1)
        used = seen.any(0)
        part.tiles(*tile, (near, block_seen), (rank[:, used], seen[:, None, used]))


def _grid(
    part: PlaneHeads, stride: int, phase: int, hline: bool, vline: bool, slash: bool, segment: bool,
    sink: int, local: int,
) -> None:  # fmt: skip
    """Horizontal lines, vertical lines, slash lines, and the rest: a pair that lies on several is
    computed with the first of them."""
    frontier, keys, values = part.frontier, part.keys, part.values
    classes = frontier % stride
    is_alone = (classes == phase) & hline
    alone, others = is_alone.nonzero()[:, 0], (~is_alone).nonzero()[:, 0]
    part.stairs(alone, keys, values, frontier[alone] + 1)
    if slash:
        _classes(part, others, stride, phase if vline else None)
    elif vline:
        below = others[frontier[others] >= phase]
        counts = (frontier[below] - phase) // stride + 1
        line_keys, line_values = (states[phase::stride].contiguous() for states in (keys, values))
        part.stairs(below, line_keys, line_values, counts)
    if not len(others) or (slash and local <= 1 and not sink and not segment):
        return
    reach = max(local, stride if segment else 0)
    for chunk in others.split(NEAR_ROWS):
        seen_to = frontier[chunk, None]
        near = max(int(seen_to[0]) - reach + 1, 0)
        rank = torch.cat([torch.arange(min(sink, near)), torch.arange(near, int(seen_to[-1]) + 1)])
        apart = seen_to - rank
        seen = (rank < sink) | (apart < local)
        if segment:
            seen |= (seen_to - phase) // stride == (rank - phase) // stride
        if vline:
            seen &= rank % stride != phase
        if slash:
            seen &= classes[chunk, None] != rank % stride
        seen &= apart >= 0
        part.tiles(chunk[None], torch.ones_like(chunk[None]).bool(), (rank[None], seen[None]))


def _classes(part: PlaneHeads, which: Tensor, stride: int, phase: int | None) -> None:
    """Some queries against the keys of their own classes modulo `stride`, and of class `phase`."""
    if not len(which):
        return
    classes = part.frontier[which] % stride
    size = min(int(classes.bincount().max()), NEAR_ROWS)
    query, real, number = tiles_of(classes, size)
    query = which[query]
    high = part.frontier[query].amax(1) // stride + 1  # keys of each tile
    at_once = max(COPIED // int(high.max()), 1)
    for some in torch.arange(len(number)).split(at_once):
        steps = torch.arange(int(high[some].max())) * stride
        rank, seen_to = number[some, None] + steps, part.frontier[query[some]][..., None]
        seen = rank[:, None] <= seen_to
        if phase is not None:
            seen_lines = (phase + steps <= seen_to) & (number[some, None, None] != phase)
            rank = torch.cat([rank, (phase + steps).expand(len(some), -1)], 1)
            seen = torch.cat([seen, seen_lines], 2)
        part.tiles(query[some], real[some], (rank.clamp(max=len(part.keys) - 1), seen))
