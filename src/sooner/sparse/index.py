"""From patterns and estimates to indices, all heads at once and without asking the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ..errors import SoonerError
from .pairs import BlockIndex, GridIndex, Index, LineIndex
from .patterns import Blocks, Lines, Pattern, Spacing
from .plane import BLOCK, Plane, PlaneStack
from .probe import BlockCells, Probe, ProbeRows, Role, States, block_count, estimate_blocks

PEAKS = 16  # strides that are tried of each profile
AT_ONCE = 1 << 22  # classes of keys that are summed at once


Fold = Callable[[Tensor, "Tensor | None", Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""Sums profiles over classes; see `fold`."""

Estimate = Callable[[States, PlaneStack, Sequence[BlockCells], Tensor], Tensor]
"""Estimates blocks; see `estimate_blocks`."""


def upload(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    """Returns int64 arrays on a device, which one copy brings there."""
    flat = np.concatenate([array.reshape(-1) for array in arrays.values()])
    parts = torch.from_numpy(flat).to(device).split([array.size for array in arrays.values()])
    return {
        name: part.view(array.shape)
        for (name, array), part in zip(arrays.items(), parts, strict=True)
    }


def line_arrays(lines: Sequence[Lines]) -> dict[str, np.ndarray]:
    """Returns what `draw_lines` reads of heads, those with lines of an estimate first."""
    always = np.array([(each.first, each.near) for each in lines], np.int64)
    counts = np.array([(each.vertical, each.slash) for each in lines], np.int64)
    return {
        "bottom": np.array([each.bottom for each in lines], np.int64),
        "below": np.where(counts > 0, counts - counts.max(), always)[..., None],
    }


def draw_lines(
    lines: Sequence[Lines],
    arrays: Mapping[str, Tensor],
    profiles: Tensor | None,
    rank: Tensor,
    keys: int,
) -> LineIndex:
    """Returns the lines of heads: those that are always there, and those that hold most.

    Args:
        arrays: `line_arrays`, on the device.
        profiles: counted sums of the first heads, `[probed, 2, keys]`.
        rank: see `PlaneStack.rank`.
    """
    most = max(max(each.vertical, each.slash) for each in lines)
    # In front of the ranks there are the places of what is picked, less their number.
    flags = rank[-most - keys - BLOCK :] < arrays["below"]
    marks = flags[..., most:]
    if profiles is not None and len(profiles):
        picked = profiles.topk(most).indices
        marks[: len(picked)].scatter_(2, picked, flags[: len(picked), :, :most])
    bound = max(max(n.first, n.near, n.vertical, BLOCK * n.slash) for n in lines)
    return LineIndex.of(marks, arrays["bottom"], BLOCK, min(bound, keys))


def grid_arrays(spacings: Sequence[Spacing], period: Sequence[int]) -> dict[str, np.ndarray]:
    """Returns what `draw_grids` reads of heads: first those with a stride to find, then those with
    a phase to find.

    Args:
        period: ranks of a video frame in the plane of each head.
    """
    columns = np.array([s.columns for s in spacings], np.int64).T
    rules = np.array([s.rules for s in spacings], np.int64)
    searched = sum(not s.stride for s in spacings)
    tried = 2 * (PEAKS + 1) if searched else 1
    strides = np.zeros((len(spacings), tried), np.int64)
    use = np.zeros((searched, 2, PEAKS + 1), np.int64)
    for head, spacing in enumerate(spacings):
        if spacing.stride:
            strides[head, 0] = spacing.stride
            continue
        use[head, :, : min(PEAKS, spacing.limit - 1)] = 1
        strides[head] = 2 * use[head].reshape(-1)  # lags are counted from 2 on
        if 1 < period[head] <= spacing.limit:
            strides[head, PEAKS] = period[head]
    limits = np.array([s.limit for s in spacings[:searched]], np.int64)[:, None, None]
    return {"columns": columns, "rules": rules, "strides": strides, "base": strides[:searched],
            "use": use.reshape(-1, tried), "limits": limits}  # fmt: skip


def draw_grids(
    spacings: Sequence[Spacing],
    arrays: Mapping[str, Tensor],
    profiles: Tensor | None,
    seen: Probe | None,
    rank: Tensor,
    fold: Fold,
) -> GridIndex:
    """Returns the grids of heads, with the strides and phases whose lines hold most.

    Args:
        arrays: `grid_arrays`, on the device.
        profiles: counted sums of the first heads, `[probed, 2, keys]`.
        seen: their probe; others may follow in it.
        rank: see `PlaneStack.rank`.
        fold: what sums over classes.
    """
    columns, strides = arrays["columns"], arrays["strides"]
    if seen is None or profiles is None or not len(profiles):
        return GridIndex(*columns)
    searched = sum(not s.stride for s in spacings)
    if searched:
        limits = {s.limit for s in spacings[:searched]}
        alike = resemblance(profiles[:searched], seen.rows.factors[:searched, 4:])
        end = max(*limits, PEAKS + 2) + 1
        alike, lag = alike[..., 2:end], rank[len(rank) // 2 :][2:end]
        if limits != {end - 1}:
            alike = alike.masked_fill(lag > arrays["limits"], -torch.inf)
        lags = alike.topk(PEAKS + 1).indices.flatten(1)
        torch.addcmul(arrays["base"], lags, arrays["use"], out=strides[:searched])
    longest = max(max(s.stride, s.limit) for s in spacings)
    frontier = seen.rows.frontier
    gains, choices = fold(profiles, seen.spread, frontier, strides, arrays["rules"], longest)
    if searched:
        choices = choices.gather(2, gains.argmax(1, keepdim=True).expand(2, -1, -1))
    return GridIndex(*choices[..., 0], *columns[2:])


def resemblance(profiles: Tensor, share: Tensor) -> Tensor:
    """Returns how much profiles resemble themselves at each lag, `[heads, 2, lags]`.

    Args:
        profiles: `[heads, 2, keys]`.
        share: one over the head's keys at each of them, `[heads, 1, keys]`.
    """
    total = profiles.sum(2, keepdim=True)
    centred = torch.addcmul(profiles, total, share, value=-1)
    spectrum = torch.fft.rfft(centred, n=2 * max(centred.shape[2], PEAKS + 2))
    return torch.fft.irfft(spectrum * spectrum.conj())


def fold(
    profiles: Tensor,
    spread: Tensor | None,
    frontier: Tensor,
    strides: Tensor,
    rules: Tensor,
    longest: int,
) -> tuple[Tensor, Tensor]:
    """Sums profiles over the classes of each stride.

    A stride's gain is the share of a profile's weight in one class, less the share that any class
    has, `1 / stride`. It is largest at the true stride: half of it has the same lines among twice
    as many, and twice of it misses every other one. MMInference's rule leaves the second away.

    Args:
        profiles: weight by key and by distance, `[probed, 2, keys]`.
        spread, frontier: of each probing query, `[probed or more, queries]`.
        strides: to try, 0 for none, `[heads, tried]`; of heads behind the probed ones as they are.
        rules: `Spacing.rules`, `[heads, 5]`.
        longest: of the strides.

    Returns:
        gains, `[heads, tried]`, and strides and phases, `[2, heads, tried]`.
    """
    stride = strides.clamp(min=1)
    gains = profiles.new_zeros(strides.shape).masked_fill_(strides == 0, -torch.inf)
    choices = torch.stack([strides, rules[:, :1] % stride])
    count, tried, keys = len(profiles), strides.shape[1], profiles.shape[2]
    at_once = max(AT_ONCE // max(tried * keys, 1), 1)
    for first in range(0, count, at_once):
        part = slice(first, min(first + at_once, count))
        steps, kind = stride[part, :, None], rules[part, :, None]
        sums = profiles.new_zeros(len(steps), 2, tried, longest)
        classes = (torch.arange(keys, device=steps.device) % steps)[:, None]
        weights = profiles[part, :, None]  # [heads, 2, 1, keys]
        shape = (len(steps), 2, tried, keys)
        sums.scatter_add_(3, classes.expand(shape), weights.expand(shape))
        total = weights.sum(3).clamp(min=1e-12)  # [heads, 2, 1]
        by_key, phase = sums[:, 0].max(2)
        even = kind[:, 3] / stride[part]
        gains[part] += kind[:, 1] * (by_key / total[:, 0] - even)
        gains[part] += kind[:, 2] * (sums[:, 1, :, 0] / total[:, 1] - even)
        if spread is not None:  # horizontal lines are queries that look everywhere
            real = frontier[part] >= 0
            rows = real.sum(1, keepdim=True)
            looks = spread[part].double() * real
            looks -= looks.sum(1, keepdim=True) / rows.clamp(min=1) * real
            classes = frontier[part, None] % steps
            sums = sums[:, 0].zero_().scatter_add_(2, classes, looks[:, None].expand(classes.shape))
            phase = torch.where((kind[:, 4] > 0) & (stride[part] <= rows), sums.argmax(2), phase)
        choices[1, part] = torch.where(kind[:, 0] < 0, phase, choices[1, part])
    return gains, choices


def block_groups(
    blocks: Sequence[Blocks], cells: Sequence[tuple[int, int]], stack: PlaneStack, group: int
) -> tuple[list[BlockCells], list[int], dict[str, np.ndarray]]:
    """Returns cells, heads in planes, with neighbours that are estimated alike in a group, the
    entry of each cell in the index of `draw_blocks`, and what that reads, bounds as the bits of
    fp64.

    Heads that share keys and have one pattern have one entry: they choose together, so that one
    gather of keys serves them.

    Args:
        group: query heads that share a key head.
    """
    pairs = groupby(zip(blocks, cells, strict=True), key=lambda pair: pair[0][:3])
    groups = [
        BlockCells(size, rows, sink, [cell for _, cell in members])
        for (size, rows, sink), members in pairs
    ]
    members: dict[tuple[Blocks, int, int], list[int]] = {}
    for number, (each, (head, row)) in enumerate(zip(blocks, cells, strict=True)):
        members.setdefault((each, row, head // group), []).append(number)
    entries = {number: entry for entry, some in enumerate(members.values()) for number in some}
    place = np.arange(block_count(stack, groups) if groups else 0)
    bounds = np.empty((2, len(members), len(place), 1))
    for entry, ((each, row, _), some) in enumerate(members.items()):
        first = max(len(stack.planes[row].keys) - each.bottom, 0) // each.size
        sees_all = (place >= first) & (each.bottom > 0)
        queries = each.rows * len(some)
        bounds[0, entry, :, 0] = np.where(sees_all, -1, each.slack * queries)
        bounds[1, entry, :, 0] = np.where(sees_all, 0, each.floor * queries)
    ends = np.cumsum([0, *map(len, members.values())])
    return groups, [entries[number] for number in range(len(cells))], {
        "bounds": bounds.view(np.int64),
        "members": np.array(list(entries), np.int64),
        "starts": ends[:-1].astype(np.int64),
        "blocks": np.array(cells, np.int64).T,
    }  # fmt: skip


def distinct(blocks: Sequence[Blocks], entries: Sequence[int]) -> list[Blocks]:
    """Returns the blocks of each entry."""
    return list(dict(zip(entries, blocks, strict=True)).values())


def draw_blocks(
    blocks: Sequence[Blocks], arrays: Mapping[str, Tensor], weights: Tensor
) -> BlockIndex:
    """Returns the fewest blocks that hold their share of the estimate: the least ones go as long
    as they hold no more than the slack together, or than the floor each. At the bottom only those
    go that hold nothing, which none of their queries sees.

    Args:
        blocks: of each entry of the index.
        arrays: of `block_groups`, on the device.
        weights: of `estimate_blocks`.
    """
    count, flat = weights.shape[1], weights.flatten(1)
    shared = embedding_bag(arrays["members"], flat, arrays["starts"], mode="sum")
    ascending, order = shared.view(-1, count, count).sort(2)
    slack, floor = arrays["bounds"].view(torch.float64)
    counts = ((ascending.cumsum(2) > slack) & (ascending > floor)).sum(2)
    return BlockIndex(order, counts, tuple(each.size for each in blocks))


def in_order(
    patterns: Sequence[Pattern], planes: Sequence[Plane]
) -> tuple[list[int], list[Any], int]:
    """Returns heads in the order of `grid_arrays`, what each draws there, and how many are probed.

    Args:
        patterns: of each head, all of one kind, `lines` or `grid`.
        planes: of each head.
    """
    drawn: list[Any] = [
        pattern.lines(plane) if pattern.kind == "lines" else pattern.spacing(plane)
        for pattern, plane in zip(patterns, planes, strict=True)
    ]
    stages = [
        2 if not p.dynamic else int(p.kind == "lines" or d.stride > 0)
        for p, d in zip(patterns, drawn, strict=True)
    ]
    order = sorted(range(len(patterns)), key=stages.__getitem__)
    return order, [drawn[head] for head in order], sum(stage < 2 for stage in stages)


def build(
    patterns: Sequence[Pattern], plane: Plane, seen: Probe | None, states: States | None = None
) -> Index:
    """Returns one index for heads in a plane, whose patterns differ in numbers only.

    Args:
        patterns: of each head, in the probe's order.
        seen: a probe of the plane; not read for patterns that are not dynamic.
        states: of the row with these heads, for patterns of kind `blocks`.

    Raises:
        SoonerError: a dynamic pattern without what it is taken from.
    """
    kind, device, stack = patterns[0].kind, plane.keys.device, PlaneStack((plane,))
    if kind == "blocks" and states is not None:
        blocks = [pattern.blocks() for pattern in patterns]
        cells = [(head, 0) for head in range(len(blocks))]
        groups, entries, plain = block_groups(blocks, cells, stack, states.group)
        arrays = upload(plain, device)
        weights = estimate_blocks(states, stack, groups, arrays["blocks"])
        index = draw_blocks(distinct(blocks, entries), arrays, weights)
        return index.take(torch.tensor(entries, device=device))
    if seen is None and any(pattern.dynamic for pattern in patterns):
        raise SoonerError(
            f"{patterns[0].name} is taken from an input; give the queries and keys of a head"
        )
    _, drawn, probed = in_order(patterns, [plane] * len(patterns))
    profiles = None
    if probed and seen is not None:
        role = Role(0, kind, seen.rows.queries.shape[1] - 1)
        seen = replace(seen, rows=ProbeRows.of(stack, (role,), seen.sums[:, 0, 0]))
        profiles = seen.rows.weigh(seen.sums)
    if kind == "lines":
        arrays = upload(line_arrays(drawn), device)
        return draw_lines(drawn, arrays, profiles, stack.rank, len(plane.keys))
    arrays = upload(grid_arrays(drawn, [plane.period] * len(drawn)), device)
    return draw_grids(drawn, arrays, profiles, seen, stack.rank, fold)
