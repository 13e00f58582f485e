"""Sums of profiles over classes of keys: by which strides and phases of grids are chosen."""

# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...engine.attention.kernel import on_device


@triton.jit
def fold_profile(profile, classes, stride, keys, CLASSES: tl.constexpr, STEPS: tl.constexpr):
    """Returns the sum of a profile over each of some classes, `[CLASSES]` fp64."""
    total = tl.full((CLASSES,), 0.0, tl.float64)
    step = tl.arange(0, STEPS)
    for start in range(0, tl.cdiv(keys, stride), STEPS):
        ranks = (start + step)[:, None] * stride + classes[None, :]
        there = (ranks < keys) & (classes < stride)[None, :]
        total += tl.sum(tl.load(profile + ranks, mask=there, other=0.0), 0)
    return total


@triton.jit(do_not_specialize=["probed", "keys", "queries"])
def fold_kernel(
    profiles, spread, frontier, strides, rules, gains, choices, probed, keys, queries, row,
    SPREAD: tl.constexpr, QUERIES: tl.constexpr, CLASSES: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Writes gain and phase of one stride of one head; see `sooner.sparse.index.fold`."""
    slot, head, tried = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    stride = tl.load(strides + head * tried + slot).to(tl.int32)
    rule = rules + head * 5
    phase = tl.load(rule).to(tl.int32) % tl.maximum(stride, 1)
    gain = tl.full((), float("-inf"), tl.float64)
    if (stride > 0) & (head < probed):
        profile = profiles + head * 2 * keys
        zero = tl.full((), 0.0, tl.float64)
        best, weight, apart, along = zero - 1.0, zero, zero, zero
        widest, is_spread, row_count = zero - float("inf"), False, 0
        place, wide_place = 0, 0
        member = tl.arange(0, QUERIES)
        if SPREAD:
            front = tl.load(frontier + head * row + member, mask=member < queries, other=-1)
            front = front.to(tl.int32)
            looks = tl.load(spread + head * queries + member, mask=member < queries, other=0.0)
            looks = tl.where(front >= 0, looks, 0.0).to(tl.float64)
            row_count = tl.sum((front >= 0).to(tl.int32), 0)
            mean = tl.sum(looks, 0) / tl.maximum(row_count, 1)
            looks = tl.where(front >= 0, looks - mean, 0.0)
            is_spread = (tl.load(rule + 4) > 0) & (stride <= row_count)
        for start in range(0, stride, CLASSES):
            classes = start + tl.arange(0, CLASSES)
            by_key = fold_profile(profile, classes, stride, keys, CLASSES, STEPS)
            by_distance = fold_profile(profile + keys, classes, stride, keys, CLASSES, STEPS)
            weight += tl.sum(by_key, 0)
            apart += tl.sum(by_distance, 0)
            along += tl.sum(tl.where(classes == 0, by_distance, 0.0), 0)
            by_key = tl.where(classes < stride, by_key, -1.0)
            most = tl.max(by_key, 0)
            place = tl.where(
                most > best, tl.min(tl.where(by_key == most, classes, stride), 0), place
            )
            best = tl.maximum(best, most)
            if SPREAD:
                mine = (front % stride)[:, None] == classes[None, :]
                sums = tl.sum(tl.where(mine, looks[:, None], 0.0), 0)
                sums = tl.where(classes < stride, sums, float("-inf"))
                most = tl.max(sums, 0)
                wide_place = tl.where(
                    most > widest, tl.min(tl.where(sums == most, classes, stride), 0), wide_place
                )
                widest = tl.maximum(widest, most)
        even = tl.load(rule + 3).to(tl.float64) / stride
        share = best / tl.maximum(weight, 1e-12) - even
        gain = tl.load(rule + 1).to(tl.float64) * share
        gain += tl.load(rule + 2).to(tl.float64) * (along / tl.maximum(apart, 1e-12) - even)
        chosen = tl.where(is_spread, wide_place, place)
        phase = tl.where(tl.load(rule) < 0, chosen, phase)
    tl.store(gains + head * tried + slot, gain)
    at = choices + head * tried + slot
    tl.store(at, stride)
    tl.store(at + tl.num_programs(1) * tried, phase)


def fold(
    profiles: Tensor,
    spread: Tensor | None,
    frontier: Tensor,
    strides: Tensor,
    rules: Tensor,
    longest: int,
) -> tuple[Tensor, Tensor]:
    """Returns what `sooner.sparse.index.fold` does, by one launch."""
    heads, tried = strides.shape
    gains = torch.empty(heads, tried, dtype=torch.float64, device=strides.device)
    choices = torch.empty(2, heads, tried, dtype=torch.int64, device=strides.device)
    queries = frontier.shape[1]
    with on_device(profiles):
        fold_kernel[tried, heads](
            profiles, profiles if spread is None else spread, frontier, strides, rules, gains,
            choices, len(profiles), profiles.shape[2], queries, frontier.stride(0),
            SPREAD=spread is not None, QUERIES=triton.next_power_of_2(queries),
            CLASSES=min(triton.next_power_of_2(longest), 64), STEPS=32, num_warps=4,
        )  # fmt: skip
    return gains, choices
