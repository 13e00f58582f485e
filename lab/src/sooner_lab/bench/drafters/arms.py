"""Arms of trained drafters: whose weights, how they are asked, and what they have to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sooner import miniatures
from sooner.methods import Method, load_drafter
from sooner.registry import choices

DEPTH = 5
"""Levels of every tree and tokens of every chain, so that ratios are of one depth."""
BLOCK = 15
"""The same of a block's drafts, which one forward makes: a block of 16 less its anchor."""


@dataclass(frozen=True)
class TrainedArm:
    """One way to draft with trained weights.

    Attributes:
        drafter: folder of the weights in the video miniature.
        options: of the method that runs them.
        baseline: the arm with the same weights that it is compared with; itself has none.
        run_by: name of the method, where the files' kind has several.
    """

    drafter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    baseline: str | None = None
    run_by: str | None = None

    @property
    def folder(self) -> Path:
        return miniatures.find("video").target.parent / self.drafter

    def method(self) -> Method:
        """The method; loads the weights."""
        if self.run_by is not None:
            made: Method = choices()[self.run_by].load()(self.folder, **self.options)
            return made
        return load_drafter(self.folder, **self.options)


TRAINED: dict[str, TrainedArm] = {
    "eagle3-chain": TrainedArm("eagle3", {"nodes": DEPTH, "depth": DEPTH, "top_k": 1}),
    "eagle3": TrainedArm("eagle3", {"nodes": 16, "depth": DEPTH, "top_k": 4}, "eagle3-chain"),
    "mtp-chain": TrainedArm("mtp", {"nodes": DEPTH, "depth": DEPTH, "top_k": 1}),
    "mtp": TrainedArm("mtp", {"nodes": 16, "depth": DEPTH, "top_k": 4}, "mtp-chain"),
    "dflash": TrainedArm("dflash", {"num_draft_tokens": BLOCK}),
    "ddtree": TrainedArm("dflash", {"nodes": 32}, "dflash", run_by="ddtree"),
}


@dataclass(frozen=True)
class DrafterGoal:
    """What an arm has to reach; fixed before anything was measured.

    Attributes:
        arm: whose figure.
        figure: its key.
        wanted: least value.
        over_baseline: the figure is divided by that of the arm's baseline.
    """

    arm: str
    figure: str
    wanted: float
    over_baseline: bool = False

    @property
    def name(self) -> str:
        over = f" over {TRAINED[self.arm].baseline}" if self.over_baseline else ""
        return f"{self.arm}: {self.figure}{over}"


GOALS = (
    DrafterGoal("eagle3-chain", "mean_acceptance_length", 2.0),
    DrafterGoal("eagle3", "mean_acceptance_length", 1.1, over_baseline=True),
    DrafterGoal("eagle3", "decode_speedup", 1.0),
    DrafterGoal("mtp-chain", "mean_acceptance_length", 2.0),
    DrafterGoal("mtp", "mean_acceptance_length", 1.1, over_baseline=True),
    DrafterGoal("mtp", "decode_speedup", 1.0),
    DrafterGoal("dflash", "mean_acceptance_length", 4.0),
    DrafterGoal("dflash", "decode_speedup", 1.0),
    DrafterGoal("ddtree", "mean_acceptance_length", 1.1, over_baseline=True),
    DrafterGoal("ddtree", "decode_speedup", 1.0),
)
