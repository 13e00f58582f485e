"""Acceptance as it came out of an arm's rounds, beside the script's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from sooner.engine.stats.run import Stats
from sooner.tasks.act.rollout import wilson

from ..run import RESAMPLES
from .script import Process

CHAINS = ("speculative", "speculative-best", "speculative-auto", "prompt-lookup", "parallel")
"""Arms of which every judged draft token is right by the script's chance, whatever the round."""

SURE = 0.999
"""Confidence of the interval that the script's acceptance must lie in."""


def realized(name: str, stats: Sequence[Stats], process: Process, seed: int) -> dict[str, Any]:
    """Counts the draft tokens that an arm judged, and those that it accepted.

    Behind a rejection nothing is judged. A tree judges levels: one is accepted where any of its
    nodes is. The bootstrap draws the steps of all rows.

    Args:
        name: of the arm.
        stats: of one run of each text; a text that is said again says nothing new.
        process: the script's.

    Returns:
        `scripted_acceptance`; of arms that drafted the `judged` draft tokens, `rejections`,
        `realized_acceptance` and its 95 % `acceptance_interval`; `as_scripted` of `CHAINS` whose
        tokens are independent: whether so many may have been accepted by the script's chance
        (Wilson's interval, 99.9 %). A method that knows the script ahead fails it.
    """
    figures: dict[str, Any] = {"scripted_acceptance": process.acceptance}
    steps: Counter[tuple[int, int]] = Counter()  # by accepted and rejected draft tokens
    for run_stats in stats:
        for accepted, times in run_stats.acceptance_histogram.items():
            rejected = run_stats.rejection_histogram[accepted]
            steps[accepted, 1] += rejected
            steps[accepted, 0] += times - rejected
    kinds = np.array(list(steps))  # [kinds, 2]
    counts = np.array(list(steps.values()))  # [kinds]
    accepted, rejections = (counts @ kinds).tolist() if len(kinds) else (0, 0)
    judged = accepted + rejections
    if not judged:
        return figures
    total = int(counts.sum())
    picks = np.random.default_rng(seed).multinomial(total, counts / total, RESAMPLES)
    drawn = picks @ kinds  # [resamples, 2]
    rates = drawn[:, 0] / np.maximum(drawn.sum(1), 1)
    figures |= {
        "judged": judged,
        "rejections": rejections,
        "realized_acceptance": accepted / judged,
        "acceptance_interval": [float(edge) for edge in np.percentile(rates, (2.5, 97.5))],
    }
    if name in CHAINS and not process.correlation:
        low, high = wilson(accepted, judged, SURE)
        figures["as_scripted"] = low <= process.acceptance <= high
    return figures
