"""Pruners that all keep the same mean share of the visual tokens (table 2 of ParallelVLM)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sooner.errors import SoonerError
from sooner.sparse.pruning import FastV, Pruner

from ..rivals.staged_pruners import PyramidDrop, SparseVLM

PRUNERS: dict[str, type[Pruner]] = {
    "fastv": FastV, "sparse-vlm": SparseVLM, "pyramid-drop": PyramidDrop,
}  # fmt: skip
"""What table 2 compares, by arm."""


def shares(pruner: Any, layers: int) -> tuple[float, ...]:
    """Return the share of the prompt's visual tokens that goes on behind each stage."""
    behind = (1 - pruner.ratio,) if isinstance(pruner, FastV) else pruner.shares(layers)
    return tuple(behind)


def retention(pruner: Pruner, layers: int) -> float:
    """Return the mean share of visual tokens over the layers (the paper's average retention)."""
    borders = (*pruner.stages(layers), layers)
    total = sum(
        share * (end - begin)
        for share, begin, end in zip(shares(pruner, layers), borders, borders[1:], strict=False)
    )
    return (borders[0] + total) / layers


def for_retention(pruner: Any, share: float, layers: int) -> Any:
    """Return the pruner, made to keep the mean share `share` of the visual tokens.

    Where the layers in front of the first stage alone take more than three quarters of that, the
    stages are brought forward, all in the same proportion, until they take half: a shallow model
    would have nothing left for the layers behind.

    Raises:
        SoonerError: it can't keep so few or so many.
    """
    stages = pruner.stages(layers)
    if stages[0] > max(1, 0.75 * share * layers):
        first, forward, last = max(1, int(share * layers / 2)), list[int](), 0
        for stage in stages:
            last = max(last + 1, round(first * stage / stages[0]))
            forward.append(last)
        is_single = isinstance(pruner, FastV)
        moved = {"layer": forward[0]} if is_single else {"layers": tuple(forward)}
        pruner = replace(pruner, **moved)
    smallest = retention(replace(pruner, ratio=1.0), layers)
    if not smallest <= share <= 1:
        raise SoonerError(
            f"{pruner.name}: keeps between {smallest:.0%} and 100% of the visual tokens on average "
            f"over {layers} layers, so {share:.0%} is out of reach; drop in front of earlier layers"
        )
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        more = retention(replace(pruner, ratio=middle), layers) > share
        low, high = (middle, high) if more else (low, middle)
    return replace(pruner, ratio=high)
