"""Gate, regime and goals of a result: pure functions of its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest

from ..intervals import RESAMPLES, quotient
from . import settings as fixed
from .acceptance import CHAIN
from .loops import arm_of

Figures = dict[str, Any]


def succeeded(rows: Sequence[Figures], arm: str) -> dict[tuple[str, int], bool]:
    """By task and start."""
    return {(row["task"], row["seed"]): row["success"] for row in rows if row["arm"] == arm}


def rate(rows: Sequence[Figures], arm: str) -> float:
    """Percent of an arm's starts that succeeded, each task counting as much."""
    found = succeeded(rows, arm)
    by_task = {
        task: [done for (name, _), done in found.items() if name == task]
        for task in {name for name, _ in found}
    }
    return 100 * float(np.mean([np.mean(one) for one in by_task.values()]))


def paired(rows: Sequence[Figures], arm: str, seed: int = fixed.SEED) -> Figures:
    """An arm against plain decoding on the same starts.

    Returns:
        `starts`; `success` and `plain`, percent; `difference` in points with the 95 % `interval`
        of a bootstrap over starts; `lost` and `won`, starts that one of the two alone did; `p` of
        McNemar's exact test.
    """
    ours, plain = succeeded(rows, arm), succeeded(rows, fixed.PLAIN)
    both = sorted(ours.keys() & plain.keys())
    change = np.array([int(ours[one]) - int(plain[one]) for one in both])
    picks = np.random.default_rng(seed).integers(len(both), size=(RESAMPLES, len(both)))
    low, high = np.percentile(100 * change[picks].mean(1), (2.5, 97.5))
    lost, won = int((change < 0).sum()), int((change > 0).sum())
    p = binomtest(lost, lost + won).pvalue if lost + won else 1.0
    return {
        "starts": len(both),
        "success": 100 * float(np.mean([ours[one] for one in both])),
        "plain": 100 * float(np.mean([plain[one] for one in both])),
        "difference": 100 * float(change.mean()),
        "interval": [float(low), float(high)],
        "lost": lost,
        "won": won,
        "p": float(p),
    }


def gate(rows: Sequence[Figures]) -> list[Figures]:
    """Each bound of the gate, what was reached, and whether it holds."""
    found = []
    for bound in fixed.GATE:
        if bound.what == fixed.SHAKE:
            reached = paired(rows, fixed.SHAKE)["difference"]
        else:
            reached = rate(rows, bound.what)
        found.append(_held(bound, reached))
    return found


def length(arm: Figures, seed: int = fixed.SEED) -> Figures:
    """Acceptance length, a round's own token counted, with the interval over episodes."""
    ones = [1.0] * len(arm["rounds"])
    return quotient(_tokens(arm), (ones, ones), seed)


def ratio(arm: Figures, base: Figures, seed: int = fixed.SEED) -> Figures:
    """One arm's acceptance length over another's, of the same episodes."""
    return quotient(_tokens(arm), _tokens(base), seed)


def _tokens(arm: Figures) -> tuple[list[float], list[float]]:
    """Of each episode the tokens of all its rounds, and how many rounds those are."""
    total = [a + b for a, b in zip(arm["rounds"], arm["accepted"], strict=True)]
    return total, list(arm["rounds"])


def arm_in(arms: Sequence[Figures], draft: str, shape: str, tolerance: int) -> Figures | None:
    """The row of `acceptance` of one draft, shape and rule."""
    asked = {"draft": draft, "shape": shape, "tolerance": tolerance}
    return next(
        (one for one in arms if all(one[key] == value for key, value in asked.items())), None
    )


def head_like_the_paper_s(arms: Sequence[Figures], heads: Sequence[str]) -> str:
    """The head whose chains have the strict acceptance length nearest to the middle of the
    paper's; it is chosen by acceptance alone, before anything acts."""
    middle = (fixed.REGIME[0].low + fixed.REGIME[0].high) / 2

    def apart(head: str) -> float:
        found = arm_in(arms, head, CHAIN, 0)
        return math.inf if found is None else abs(found["mean_acceptance_length"] - middle)

    return min(heads, key=apart)


def regime(arms: Sequence[Figures], head: str) -> list[Figures]:
    """Whether a head's acceptance lengths lie where the paper's do."""
    found = []
    for bound, tolerance in zip(fixed.REGIME, (0, 9), strict=True):
        one = arm_in(arms, head, CHAIN, tolerance)
        if one is not None:
            found.append(_held(bound, one["mean_acceptance_length"]))
    return found


def goals(rows: Sequence[Figures]) -> list[Figures]:
    """What each tolerance costs, against the margin."""
    found = []
    for tolerance in fixed.TOLERANCES:
        if not succeeded(rows, arm_of(tolerance)):
            continue
        told = paired(rows, arm_of(tolerance))
        found.append(
            {"goal": f"success at r={tolerance}", "wanted": fixed.MARGIN, **told,
             "met": told["interval"][0] > fixed.MARGIN}
        )  # fmt: skip
    return found


def by_deviation(rows: Sequence[Figures]) -> list[Figures]:
    """Relaxed episodes in thirds of their task by how far they had strayed.

    Returns:
        Of each third, pooled over tasks and tolerances: `deviation`, its mean; `success`, and
        `plain` on the same starts, so that a start's own difficulty is told beside it.
    """
    plain = succeeded(rows, fixed.PLAIN)
    parts: list[list[Figures]] = [[] for _ in range(fixed.THIRDS)]
    strayed = [row for row in rows if "deviation" in row and row["steps"] >= fixed.COUNTED]
    for task in sorted({row["task"] for row in strayed}):
        ordered = sorted(
            (row for row in strayed if row["task"] == task), key=lambda row: row["deviation"]
        )
        for third, some in enumerate(np.array_split(np.arange(len(ordered)), fixed.THIRDS)):
            parts[third] += [ordered[at] for at in some]
    return [
        {
            "third": number + 1,
            "episodes": len(some),
            "deviation": float(np.mean([row["deviation"] for row in some])),
            "success": 100 * float(np.mean([row["success"] for row in some])),
            "plain": 100 * float(np.mean([plain[row["task"], row["seed"]] for row in some])),
        }
        for number, some in enumerate(parts)
        if some
    ]


def _held(bound: fixed.ArmBound, reached: float) -> Figures:
    return {
        "what": bound.what, "wanted": [bound.low, bound.high], "reached": reached,
        "why": bound.why, "holds": bound.holds(reached),
    }  # fmt: skip
