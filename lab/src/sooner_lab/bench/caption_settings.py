"""What `sooner bench caption` measures: its arms by name, and how much of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sooner.registry import choices
from sooner.sparse.pruning import DyCoke, FastV, Pruner, PyramidDrop, SparseVLM

from .drafters.arms import TRAINED

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
