"""Pairs of the paper to predict from."""

from __future__ import annotations

from . import renewal, tables
from .agreement import Agreement
from .costs import StepCosts
from .predict import SAMPLE, PredictedPair


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
