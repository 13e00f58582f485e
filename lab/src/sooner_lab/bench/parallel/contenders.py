"""The arms of the study: what a user could pick, and every point of the sweep."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.engine.stats.run import APPROXIMATE, EXACT
from sooner.methods import ParallelVLM
from sooner.methods.pruning import Criterion

from ..caption_settings import LOSSY
from .settings import ParallelSettings

PLAIN, ALL_CORES = "plain", "plain-all-cores"
BASELINES = (
    "hf-assisted", "speculative", "speculative-auto", "onsd", "sd-tree", "specvlm",
    "sparse-to-dense",
)  # fmt: skip
"""Lossless peers of table 1. `speculative` is vanilla SD with its window of 5."""
OURS, UNPRUNED = "parallel", "parallel-unpruned"
FORKED = "parallel-forked"
"""`parallel` without a `StandingDraft`: a draft process is forked for each run."""


@dataclass(frozen=True)
class ParallelContender:
    """One arm.

    Attributes:
        name: unique in a study.
        part: of `settings.PARTS`, the first that asks for it.
        alpha: share of the visual tokens that the draft of a `parallel` arm does without; `None`
            for every other arm.
        criterion: how they are chosen.
        mode: `exact` or `approximate`.
    """

    name: str
    part: str
    alpha: float | None = None
    criterion: Criterion = ParallelVLM.criterion
    mode: str = EXACT


def contenders(settings: ParallelSettings) -> list[ParallelContender]:
    """Every arm that the settings ask for, plain decoding first, none twice."""
    ours, whole, forked = (
        ParallelContender(OURS, "methods", settings.prune),
        ParallelContender(UNPRUNED, "methods", 0.0),
        ParallelContender(FORKED, "methods", settings.prune),
    )
    arms = [ParallelContender(PLAIN, "methods")]
    if settings.all_cores:
        arms.append(ParallelContender(ALL_CORES, "methods"))
    if "methods" in settings.parts:
        arms += [ParallelContender(name, "methods") for name in BASELINES]
        arms += [ours, whole, forked]
    if "lossy" in settings.parts:
        arms += [ParallelContender(name, "lossy", mode=APPROXIMATE) for name in LOSSY] + [ours]
    if "sweep" in settings.parts:
        arms += sweep(settings)
    first: dict[str, ParallelContender] = {}
    for arm in arms:
        first.setdefault(arm.name, arm)
    return list(first.values())


def sweep(settings: ParallelSettings) -> list[ParallelContender]:
    """The points of the sweep; the ones that are arms of their own bear those arms' names."""
    return [
        ParallelContender(point_name(settings, criterion, alpha), "sweep", alpha, criterion)
        for alpha in settings.ratios
        for criterion in (settings.criteria if alpha else settings.criteria[:1])
    ]


def point_name(settings: ParallelSettings, criterion: str, alpha: float) -> str:
    """The arm that prunes the share `alpha` by `criterion`; without pruning all are one."""
    if alpha == 0:
        return UNPRUNED
    if (criterion, alpha) == (ParallelVLM.criterion, settings.prune):
        return OURS
    return f"{criterion}@{alpha:g}"
