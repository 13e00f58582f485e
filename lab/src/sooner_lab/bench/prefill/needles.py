"""Needles in videos, alone or with text, and in text (MMInference, figures 5, 13, 14)."""

from __future__ import annotations

from functools import partial
from typing import Any

from sooner.sparse.prefill import MMInference
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import ModelPair

from ...needles import NeedleTask, reader, run
from ..run import Progress
from .arms import pattern
from .settings import PrefillSettings
from .text import KINDS, TextTask

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEXT_SHARES = (0.0, 0.25)
"""Share of the haystack that is text: V-NIAH and MM-NIAH."""
ARMS = ("dense", "a-shape", "tri-shape", "vertical-slash", "ours")
REPLY, NUMBER = 256, 8
"""New tokens of a caption, in which the needle is one of the scenes, and of a number."""


def needles(
    settings: PrefillSettings, pair: ModelPair, ours: PatternTable, progress: Progress
) -> list[dict[str, Any]]:
    """Return right answers of each task and arm, as `ResultGrid` writes itself, and `at_longest`,
    their share at the greatest length, for which uniform patterns are sized."""
    target, grids = pair.target, []
    tasks: list[Any] = []
    lengths, widest, reply = settings.frames, 16 * max(settings.frames), REPLY
    if target.is_text:
        tasks += [TextTask(target.tokenizer, kind) for kind in KINDS]
        lengths, widest, reply = settings.lengths, max(settings.lengths), NUMBER
    else:
        make = partial(NeedleTask, target.processor, ask="caption" if pair.miniature else "colour")
        tasks += [make(text_share=share, needle_frames=2) for share in TEXT_SHARES]
    seeds = range(settings.seed, settings.seed + settings.needles)
    arms: dict[str, MMInference | None] = {
        name: MMInference(
            ours if name == "ours" else pattern(name, widest, settings.budget), dense_below=0
        )
        for name in ARMS[1:]
        if name in settings.arms
    }
    for task in tasks:
        for name, prefill in ({"dense": None} | arms).items():
            answer = reader(target.model, target.processor, prefill=prefill, max_new_tokens=reply)
            progress(f"needles, {task.kind}: {name}")
            grid = run(task, answer, lengths, DEPTHS, seeds, name=name)
            grids.append({**grid.as_dict(), "at_longest": float(grid.accuracy[-1].mean())})
    return grids
