"""What the simulator of `sooner_lab.theory` says an arm should have gained."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from sooner.engine.stats.run import Stats

from ..theory import Agreement, Curve, StepCosts, free_running, vanilla

TOKENS = 4000
"""Simulated tokens; the runs of the measurement are repeated as often as that takes."""


def predicted_speedup(
    stats: Sequence[Stats], plain: Sequence[Stats], num_draft_tokens: int | None = None
) -> float | None:
    """Speed-up over plain decoding that step times and agreement allow a pair.

    Args:
        stats: runs of an arm with a draft model whose drafts are chains.
        plain: runs of plain decoding.
        num_draft_tokens: of a round, for an arm that drafts and verifies by turns. `None` is an arm
            whose draft runs beside the target.

    Returns:
        `None` where the arm drafted nothing or plain decoding took no step.
    """
    runs = [run for each in stats for run in each.runs]
    drafts = [seconds for each in stats for seconds in each.draft_seconds]
    curve = step_curve([*plain, *stats])
    if not runs or not drafts or not any(each.verify_seconds.get(1) for each in plain):
        return None
    costs = StepCosts(curve, median(drafts))
    agreement = Agreement.from_token_runs(runs)
    if num_draft_tokens is None:
        return free_running(costs, agreement, TOKENS).speedup
    return vanilla(costs, agreement, num_draft_tokens, TOKENS).speedup


def step_curve(stats: Sequence[Stats]) -> Curve:
    """Median seconds of a target forward by the tokens in it.

    A block size that was seen only now and then says more about the machine than about itself, so
    sizes with fewer than five forwards are left out where others remain.
    """
    times: dict[int, list[float]] = {}
    for each in stats:
        for block, seconds in each.verify_seconds.items():
            times.setdefault(block, []).extend(seconds)
    often = {block: seconds for block, seconds in times.items() if len(seconds) >= 5} or times
    return Curve.of({block: median(seconds) for block, seconds in often.items()})
