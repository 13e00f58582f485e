"""What `sooner bench caption` measures: its arms by name, and how much of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sooner import miniatures
from sooner.methods import Method, load_drafter
from sooner.registry import choices
from sooner.sparse.pruning import DyCoke, FastV, Pruner, PyramidDrop, SparseVLM

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

    def method(self) -> Method:
        """Load the weights and return the method."""
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

HF_DEFAULT = ("hf", "hf-assisted", "hf-prompt-lookup")
HF = (*HF_DEFAULT, "hf-dflash")
"""The last with the drafter of arm `dflash`, run by transformers."""
OURS = ("prompt-lookup", "speculative", "speculative-auto", "parallel", "parallel-unpruned")
ARMS = ("plain", *HF_DEFAULT, *OURS)
"""Arms of a default run."""
BASELINES = tuple(
    name
    for name, entry in choices().items()
    if name not in ARMS and entry.draft_model != "head"  # heads are trained for one model
)
LOSSY: dict[str, type[Pruner]] = {
    "fastv": FastV,
    "sparse-vlm": SparseVLM,
    "pyramid-drop": PyramidDrop,
    "dycoke": DyCoke,
}
"""Plain decoding of a pruned target: approximate, so judged by acceptance instead of parity."""
KNOWN = (*ARMS, "hf-dflash", *BASELINES, *LOSSY, *TRAINED)
BATCHED = ("plain", "speculative", "speculative-auto", "parallel")
"""Arms that decode a batch, too."""
SIMULATED = ("speculative", "parallel", "parallel-unpruned")
"""Arms that the simulator of `sooner_lab.theory` models."""
RETENTION = 0.1
FIXED_DRAFT_TOKENS = 5
FIXED = ("speculative", "onsd")
"""Arms with `num_draft_tokens` a round, as the paper's baselines have; the others choose."""


@dataclass(frozen=True)
class BenchSettings:
    """What is measured.

    Attributes:
        model, draft: hub ids or folders; `None` is the miniature.
        arms: names among `KNOWN`.
        files: videos; without them and without `dataset`, held-out ones of the miniature's world.
        dataset: a public benchmark, see `clips.from_dataset`.
        min_seconds: samples of `dataset` are at least this long; `None` is the paper's minute.
        clips: how many to render, or to take from `dataset`.
        frames: frames of each clip; `None` leaves it to the processor.
        repeats: timed runs of each arm on each clip.
        max_new_tokens: where a caption is cut.
        num_draft_tokens: draft tokens of the arms in `FIXED`; the others choose their own.
        prune: share of the visual tokens that pruned drafts do without.
        retention: mean share of the visual tokens that the arms of `LOSSY` keep; the paper's 10 %.
        batch: rows of the batch measurement; 0 leaves it out.
        memory: measure peak memory of plain and speculative decoding in processes of their own.
        device, dtype, threads, seed: as everywhere.
    """

    model: str | None = None
    draft: str | None = None
    arms: tuple[str, ...] = ARMS
    files: tuple[Path, ...] = ()
    dataset: str | None = None
    min_seconds: float | None = None
    clips: int = 4
    frames: int | None = None
    repeats: int = 3
    max_new_tokens: int = 256
    num_draft_tokens: int = FIXED_DRAFT_TOKENS
    prune: float | None = None
    retention: float = RETENTION
    batch: int = 8
    memory: bool = True
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    seed: int = 20_261_121
