"""What `sooner bench caption`, `drafters` and `parallel` measure: arms by name, and how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sooner import miniatures
from sooner.checks import option
from sooner.registry import choices

from .fields import names, numbers, texts
from .settings import BenchSettings

DEPTH = 5
"""Levels of every tree and tokens of every chain of trained drafters, so that ratios are of one
depth."""
BLOCK = 15
"""The size of a block's drafts, which one forward makes: a block of 16 less its anchor."""


@dataclass(frozen=True)
class TrainedArm:
    """One way to draft with trained weights of the video miniature.

    Attributes:
        drafter: folder of the weights in the miniature's.
        options: of the method that runs them.
        baseline: the arm with the same weights that this one is compared with; a chain has none.
        run_by: name of the method, where the files' kind has several.
    """

    drafter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    baseline: str | None = None
    run_by: str | None = None

    @property
    def folder(self) -> Path:
        return miniatures.find("video").target.parent / self.drafter

    def method(self) -> Any:
        """Load the weights and return the method."""
        if self.run_by is not None:
            return choices()[self.run_by].load()(self.folder, **self.options)
        from sooner.methods import load_drafter

        return load_drafter(self.folder, **self.options)


TRAINED: dict[str, TrainedArm] = {
    "eagle3-chain": TrainedArm("eagle3", {"nodes": DEPTH, "depth": DEPTH, "top_k": 1}),
    "eagle3": TrainedArm("eagle3", {"nodes": 16, "depth": DEPTH, "top_k": 4}, "eagle3-chain"),
    "mtp-chain": TrainedArm("mtp", {"nodes": DEPTH, "depth": DEPTH, "top_k": 1}),
    "mtp": TrainedArm("mtp", {"nodes": 16, "depth": DEPTH, "top_k": 4}, "mtp-chain"),
    "dflash": TrainedArm("dflash", {"num_draft_tokens": BLOCK}),
    "ddtree": TrainedArm("dflash", {"nodes": 32}, "dflash", run_by="ddtree"),
}

HF_DEFAULT = ("hf", "hf-assisted", "hf-prompt-lookup")
HF = (*HF_DEFAULT, "hf-dflash")
"""The last with the drafter of arm `dflash`, run by transformers."""
OURS = ("prompt-lookup", "speculative", "speculative-auto", "parallel", "parallel-unpruned")
ARMS = ("plain", *HF_DEFAULT, *OURS)
"""Arms of a default run."""
BASELINES = tuple(
    name
    for name, entry in choices().items()
    if name not in ARMS and entry.drafts_with != "head"  # heads are trained for one model
)
COMPILED = "plain-compiled"
"""Plain decoding whose forwards `torch.compile` has made, which takes a minute or so beforehand."""
LOSSY = ("fastv", "sparse-vlm", "pyramid-drop")
"""Plain decoding of a target that a pruner prunes: approximate, so judged by acceptance instead of
parity."""
KNOWN = (*ARMS, COMPILED, "hf-dflash", *BASELINES, *LOSSY, *TRAINED)
SIMULATED = ("speculative", "parallel", "parallel-unpruned")
"""Arms that the simulator of `sooner_lab.theory` models."""
FIXED = ("speculative", "onsd")
"""Arms with `num_draft_tokens` a round, as the paper's baselines have; the others choose."""
DRAFTERS = (
    *("plain", "hf-prompt-lookup", "hf-dflash", "prompt-lookup", "speculative"),
    *TRAINED,
)  # fmt: skip
"""Arms of `sooner bench drafters`."""


@dataclass(frozen=True)
class ClipSettings(BenchSettings):
    """Base of benches that caption clips.

    Attributes:
        files: videos; by default held-out rendered clips of the miniature's world.
        model: target model; without it, the bundled miniature.
        draft: draft model of the same family.
        dataset: samples of VideoDetailCaption, VideoMME, MVBench, MLVU, LongVideoBench, ...; of a
            local copy: NAME=FOLDER.
        min_seconds: leave out shorter videos of a dataset; by default 60.
        clips: held-out clips to render, or samples to take.
        frames: frames of each video; by default what the model's processor samples.
        repeats: timed runs of each arm on each clip.
        max_new_tokens: where a caption is cut.
        num_draft_tokens: draft tokens a round of the arms `speculative` and `onsd`.
        prune: share of the visual tokens that pruned drafts do without.
        retention: mean share of the visual tokens that lossy arms keep, over layers.
        threads: torch threads on a CPU; by default one for each core that no process beside it has,
            for miniatures 1.
    """

    files: tuple[Path, ...] = ()
    model: str | None = option(None, metavar="ID_OR_PATH")
    draft: str | None = option(None, metavar="ID_OR_PATH")
    dataset: str | None = option(None, metavar="NAME[=FOLDER]")
    min_seconds: float | None = option(None, 0)
    clips: int = option(4, 1)
    frames: int | None = option(None, 1)
    repeats: int = option(3, 1)
    max_new_tokens: int = option(256, 2)
    num_draft_tokens: int = option(5, 1)
    prune: float | None = option(None, 0, 1, metavar="SHARE")
    retention: float = option(0.1, 0, 1, metavar="SHARE")
    threads: int | None = option(None, 1)


@dataclass(frozen=True)
class CaptionBenchSettings(ClipSettings):
    """Time plain decoding, HF's peers and our methods on the same clips, in one run.

    Exits with 1 when an exact arm differs from plain decoding by more than a tie.

    Attributes:
        arms: only these arms (plain is always in).
    """

    arms: tuple[str, ...] = names("arm", KNOWN, "plain", ARMS)

    FULL: ClassVar[Mapping[str, Any]] = {"clips": 12, "repeats": 5}


@dataclass(frozen=True)
class DrafterBenchSettings(ClipSettings):
    """Time trained drafters against chains of the same weights, and count acceptance by depth.

    Exits with 1 when an arm differs from plain decoding by more than a tie.

    Attributes:
        arms: only these arms (plain is always in).
        heads: folders of more drafters that were trained for the model; each is an arm of its
            folder's name (of `NAME/head`, NAME), a chain or block of a fixed length.
    """

    clips: int = option(6, 1)
    arms: tuple[str, ...] = names("arm", DRAFTERS, "plain")
    heads: tuple[str, ...] = texts(())

    FULL: ClassVar[Mapping[str, Any]] = {"clips": 24, "repeats": 5}


PARTS = ("methods", "lossy", "sweep")
"""Tables 1 and 6; table 2; tables 3, 5, 7 and figure 6."""
SWEPT = ("uv-prune-by-frame", "uv-prune", "uniform")
"""Criteria by which a draft's visual tokens are chosen, the method's own first."""


@dataclass(frozen=True)
class ParallelBenchSettings(ClipSettings):
    """Time every lossless and lossy method, and sweep the pruning ratio.

    Exits with 1 when an exact arm differs from plain decoding by more than a tie.

    Attributes:
        scenes: of a rendered clip.
        frames_per_scene: frames that models see of each rendered scene.
        parts: only methods, lossy, sweep.
        alphas: pruning ratios of the sweep; 0 and that of --prune are always among them.
        criteria: only these criteria in the sweep.
        prune: pruning ratio of every other arm.
        all_cores: time plain decoding with a torch thread for every core, too.
        placement: where the draft of `parallel` runs: auto, process, spawn or thread.
    """

    clips: int = option(2, 1)
    scenes: int = option(6, 1)
    frames_per_scene: int = option(8, 1)
    repeats: int = option(1, 1)
    parts: tuple[str, ...] = names("part", PARTS)
    alphas: tuple[float, ...] = numbers("--alphas", (0.0, 0.5, 0.7, 0.8, 0.9, 0.95), float, 0, 1)
    criteria: tuple[str, ...] = names("criterion", SWEPT)
    prune: float = option(0.9, 0, 1, metavar="SHARE")
    all_cores: bool = False
    placement: str = option("auto", metavar="NAME")

    FULL: ClassVar[Mapping[str, Any]] = {"clips": 12, "repeats": 3, "all_cores": True}

    @property
    def is_rendered(self) -> bool:
        return not self.files and self.dataset is None

    @property
    def ratios(self) -> tuple[float, ...]:
        """Pruning ratios of the sweep, ascending."""
        return tuple(sorted({*self.alphas, 0.0, self.prune}))
