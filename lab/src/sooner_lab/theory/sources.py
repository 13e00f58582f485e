"""Pairs to predict from: the paper's, or a result of `sooner bench caption`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sooner.errors import SoonerError

from . import renewal, tables
from .agreement import Agreement
from .costs import Curve, StepCosts
from .predict import SAMPLE, PredictedPair

ARMS = ("speculative", "parallel", "speculative-auto")
"""Arms that measured a draft, the one with a fixed window and a lane of its own first."""


def from_paper(name: str) -> PredictedPair:
    """A pair of the paper with its pruned draft; M is the mean over table 1's data sets.

    Raises:
        SoonerError: unknown name.
    """
    paper = tables.find(name)
    rate = renewal.rate_of_run(paper.parallel.mean_run_length)
    return PredictedPair(
        paper.name,
        StepCosts(paper.target_ms / 1e3, paper.draft_ms[0.9] / 1e3),
        Agreement.even(rate, SAMPLE),
        tables.OUTPUT_TOKENS,
        paper.target_prefill_s,
        paper.draft_prefill_s or 0.0,
    )


def from_bench(result: dict[str, Any], arm: str | None = None) -> PredictedPair:
    """A pair as `sooner bench` measured it: step times, acceptance, prefills, answer length.

    T_p of one token is the plain arm's mean verification, T_p of a window the draft arm's; T_q is
    the draft arm's drafting time over the levels that it drafted, each token of a chain.

    Args:
        result: the whole object; arms as `bench.run.row` writes them.
        arm: which arm's draft; by default the first of `ARMS` that is there.

    Raises:
        SoonerError: no plain arm, no arm with a draft, or a figure missing in them.
    """
    try:
        arms = {arm_row["method"]: arm_row for arm_row in result["arms"]}
        runs = result["clips"] * result["repeats"]
        return _pair(result, _need(arms, ("plain",)), _need(arms, (arm,) if arm else ARMS), runs)
    except (KeyError, TypeError, ZeroDivisionError, AttributeError) as error:
        raise SoonerError(
            f"the result lacks what a prediction needs ({type(error).__name__} {error}); make one "
            "with `sooner bench caption --arms speculative --json FILE`"
        ) from error


def _need(arms: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    names = tuple(names)
    for name in names:
        if "seconds" in arms.get(name, {}):
            return arms[name]
    raise SoonerError(
        f"the result has no measured arm {' or '.join(names)}, only {', '.join(sorted(arms))}; "
        "make one with `sooner bench caption --arms speculative --json FILE`"
    )


def _pair(
    result: dict[str, Any], plain: dict[str, Any], arm: dict[str, Any], runs: int
) -> PredictedPair:
    histogram = {int(size): times for size, times in arm["acceptance_histogram"].items()}
    accepted = sum(size * times for size, times in histogram.items())
    num_draft_tokens = max(histogram)
    if not accepted:
        raise SoonerError(f"arm '{arm['method']}' accepted no draft token; nothing to gain from it")
    step, block = _verification(plain, runs), _verification(arm, runs)
    seconds, clips = plain["seconds"], result["clips"]
    before = (plain["e2e_seconds"] - plain["decode_seconds"]) / clips
    return PredictedPair(
        f"{result['model']}, acceptance of '{arm['method']}'",
        StepCosts(
            Curve.of({1: step, 1 + num_draft_tokens: max(step, block)}),
            arm["seconds"]["draft"] * runs * arm["acceptance_rate"] / accepted,
        ),
        Agreement.from_histogram(histogram, num_draft_tokens),
        max(1, round(plain["tokens"] / clips)),
        seconds["prefill"],
        arm["seconds"]["draft_prefill"],
        max(0.0, before - seconds["prefill"]),
    )


def _verification(arm: dict[str, Any], runs: int) -> float:
    """Mean seconds of a target forward behind the prefill, of which each run has one."""
    return arm["seconds"]["verify"] * runs / (arm["nfe"] - runs)
