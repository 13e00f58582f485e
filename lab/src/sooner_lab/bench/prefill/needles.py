"""Needles in videos, and in videos with text between them (MMInference, figures 5, 13, 14)."""

from __future__ import annotations

from typing import Any

from sooner.sparse.patterns import Dense
from sooner.sparse.prefill import MMInference
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import ModelPair

from ...needles import NeedleTask, ResultGrid, reader, run
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
) -> dict[str, Any]:
    """Right answers of each task and arm, as `ResultGrid` writes itself."""
    return {
        "needles": [
            _grid(settings, pair, ours, name, share, progress).as_dict()
            for share in TEXT_SHARES
            for name in ARMS
            if name in settings.arms
        ]
    }


def _grid(
    settings: PrefillSettings,
    pair: ModelPair,
    ours: PatternTable,
    name: str,
    share: float,
    progress: Progress,
) -> ResultGrid:
    target = pair.target
    task = NeedleTask(
        target.processor,
        text_share=share,
        ask="caption" if pair.miniature else "colour",
        needle_frames=2,
    )
    prefill = None
    if name == "ours":
        prefill = MMInference(ours, dense_below=0)
    elif name != "dense":
        made = pattern(name, 16 * max(settings.frames), settings.budget)
        assert not isinstance(made, Dense)
        prefill = MMInference.uniform(made, dense_below=0)
    reply = reader(target.model, target.processor, prefill=prefill, max_new_tokens=REPLY)
    return run(
        task,
        reply,
        settings.frames,
        DEPTHS,
        range(settings.seed, settings.seed + settings.needles),
        name=name,
        on_sample=lambda sample: progress(f"{name}: {sample['id']}"),
    )
