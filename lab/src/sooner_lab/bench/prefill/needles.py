"""Needles in videos, and in videos with text between them (MMInference, figures 5, 13, 14)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sooner.sparse.patterns import Dense
from sooner.sparse.prefill import MMInference
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import ModelPair

from ...needles import NeedleTask, reader, run
from ..run import Progress
from .arms import pattern
from .settings import PrefillSettings

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEXT_SHARES = (0.0, 0.25)
"""Share of the haystack that is text: V-NIAH and MM-NIAH."""
ARMS = ("dense", "a-shape", "vertical-slash", "ours")
REPLY = 256
"""New tokens of a caption, in which the needle is one of the scenes."""


def needles(
    settings: PrefillSettings, pair: ModelPair, ours: PatternTable, progress: Progress
) -> list[dict[str, Any]]:
    """Return right answers of each task and arm, as `ResultGrid` writes itself."""
    target, grids = pair.target, []
    seeds = range(settings.seed, settings.seed + settings.needles)
    for share in TEXT_SHARES:
        task = NeedleTask(
            target.processor,
            text_share=share,
            ask="caption" if pair.miniature else "colour",
            needle_frames=2,
        )
        for name in ARMS:
            if name in settings.arms:
                grid = run(
                    task,
                    reader(
                        target.model,
                        target.processor,
                        prefill=_prefill(name, settings, ours),
                        max_new_tokens=REPLY,
                    ),
                    settings.frames,
                    DEPTHS,
                    seeds,
                    name=name,
                    on_sample=partial(_tell, progress, name),
                )
                grids.append(grid.as_dict())
    return grids


def _prefill(name: str, settings: PrefillSettings, ours: PatternTable) -> MMInference | None:
    if name == "dense":
        return None
    if name == "ours":
        return MMInference(ours, dense_below=0)
    made = pattern(name, 16 * max(settings.frames), settings.budget)
    assert not isinstance(made, Dense)
    return MMInference(made, dense_below=0)


def _tell(progress: Callable[[str], None], name: str, sample: dict[str, Any]) -> None:
    progress(f"{name}: {sample['id']}")
