"""What `sooner bench parallel` measures, and how much of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sooner.errors import under_old_names
from sooner.methods.pruning import Criterion

from ..caption_settings import RETENTION, BenchSettings

PARTS = ("methods", "lossy", "sweep")
"""Tables 1 and 6; table 2; tables 3, 5, 7 and figure 6."""
ALPHAS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95)
SWEPT: tuple[Criterion, ...] = (
    "uv-prune-by-frame", "uv-prune", "attention-by-frame", "attention", "uniform", "random",
    "similarity",
)  # fmt: skip
"""Ways to choose the draft's visual tokens, the method's own first."""
SCENES, FRAMES_PER_SCENE = 6, 8


@dataclass(frozen=True)
class ParallelSettings:
    """What is measured.

    Attributes:
        model, draft: hub ids or folders; `None` is the miniature.
        files: videos; without them and without `dataset`, held-out ones of the miniature's world.
        dataset, min_seconds: see `sooner_lab.bench.clips.from_dataset`.
        clips: how many to render or to take.
        scenes, frames_per_scene: of a rendered clip, and frames that a model is shown of each.
        frames: frames of every other clip; `None` leaves it to the processor.
        repeats: timed runs of each arm on each clip.
        parts: among `PARTS`.
        alphas: pruning ratios of the sweep; 0 and `prune` are always among them.
        criteria: among `sooner.methods.pruning.CRITERIA`.
        prune: the ratio of the arms beside the sweep.
        retention: mean share of the visual tokens that the lossy arms keep; the paper's 10 %.
        num_draft_tokens: draft tokens of the `speculative` arm; 5 are the baselines' own.
        max_new_tokens: where a caption is cut.
        all_cores: time plain decoding with a torch thread for every core, too.
        placement: where the draft of `parallel` runs.
        device, dtype, threads, seed: as everywhere.
    """

    model: str | None = None
    draft: str | None = None
    files: tuple[Path, ...] = ()
    dataset: str | None = None
    min_seconds: float | None = None
    clips: int = 2
    scenes: int = SCENES
    frames_per_scene: int = FRAMES_PER_SCENE
    frames: int | None = None
    repeats: int = 1
    parts: tuple[str, ...] = PARTS
    alphas: tuple[float, ...] = ALPHAS
    criteria: tuple[Criterion, ...] = SWEPT
    prune: float = 0.9
    retention: float = RETENTION
    num_draft_tokens: int = 5
    max_new_tokens: int = 256
    all_cores: bool = False
    placement: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    seed: int = 20_261_121

    @property
    def is_rendered(self) -> bool:
        return not self.files and self.dataset is None

    @property
    def frames_per_clip(self) -> int | None:
        """Frames that a model is shown of each clip."""
        return self.scenes * self.frames_per_scene if self.is_rendered else self.frames

    @property
    def ratios(self) -> tuple[float, ...]:
        """Pruning ratios of the sweep, ascending."""
        return tuple(sorted({*self.alphas, 0.0, self.prune}))

    def for_captions(self) -> BenchSettings:
        """Returns settings for `sooner_lab.bench.caption`, which runs what is no variant of
        `parallel`.
        """
        return BenchSettings(
            model=self.model,
            draft=self.draft,
            arms=("plain", "hf-assisted"),
            frames=self.frames_per_clip,
            repeats=self.repeats,
            max_new_tokens=self.max_new_tokens,
            num_draft_tokens=self.num_draft_tokens,
            prune=self.prune,
            retention=self.retention,
            device=self.device,
            dtype=self.dtype,
            threads=self.threads,
            seed=self.seed,
        )

    def identity(self) -> dict[str, Any]:
        """What a run depends on, beside its arm, clip and repetition; ready for JSON."""
        values = under_old_names(asdict(self))
        for name in ("clips", "repeats", "parts", "alphas", "criteria", "all_cores"):
            del values[name]
        return {**values, "files": [str(path) for path in self.files]}
