"""Needles in videos, alone or with text, and in text (MMInference, figures 5, 13, 14)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from sooner.sparse.prefill import MMInference
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import ModelPair

from ...needles import NeedleTask, reader, run
from ...worlds.needle.task import KINDS as LETTERS
from ...worlds.needle.task import LetterTask
from ..run import Progress
from .arms import pattern
from .settings import PrefillSettings
from .text import KINDS, TextTask

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEXT_SHARES = (0.0, 0.25)
"""Share of the haystack that is text: V-NIAH and MM-NIAH."""
ARMS = ("dense", "a-shape", "tri-shape", "vertical-slash", "block-top-p", "grid", "ours")
REPLY = 8
"""New tokens of a number, a colour or a letter."""


def needles(
    settings: PrefillSettings, pair: ModelPair, ours: PatternTable | None, progress: Progress
) -> list[dict[str, Any]]:
    """Return right answers of each task and arm, as `ResultGrid` writes itself, and `at_longest`,
    their share at the greatest length, for which uniform patterns are sized."""
    target, grids = pair.target, []
    lengths, widest = settings.lengths, max(settings.lengths)
    tasks: list[Any] = []
    if target.is_text:
        tasks += [TextTask(target.tokenizer, kind) for kind in KINDS]
    elif pair.miniature:
        tasks += [LetterTask(target.processor, kind) for kind in LETTERS]
    else:
        lengths, widest = settings.frames, 16 * max(settings.frames)
        make = partial(NeedleTask, target.processor, ask="colour", needle_frames=2)
        tasks += [make(text_share=share) for share in TEXT_SHARES]
    seeds = range(settings.seed, settings.seed + settings.needles)
    arms: dict[str, MMInference | None] = {
        name: MMInference(
            ours if name == "ours" else pattern(name, widest, settings.budget), dense_below=0
        )
        for name in ARMS[1:]
        if name in settings.arms and not (target.is_text and name == "grid")
    }
    for task in tasks:
        for name, prefill in ({"dense": None} | arms).items():
            answer = reader(target.model, target.processor, prefill=prefill, max_new_tokens=REPLY)
            progress(f"needles, {task.kind}: {name}")
            grid = run(task, answer, lengths, DEPTHS, seeds, name=name)
            shares: list[float | None] = [1.0] * len(lengths)
            if prefill is not None:
                first = [task.sample(length, 0.5, settings.seed) for length in lengths]
                shares = [_share(prefill, sample, pair) for sample in first]
            longest = float(grid.accuracy[-1].mean())
            grids.append({**grid.as_dict(), "at_longest": longest, "flops_share": shares})
    return grids


def _share(prefill: MMInference, sample: Any, pair: ModelPair) -> float | None:
    """Return the share of dense attention's pairs that a prefill of a sample computes."""
    model, processor = pair.target.model, pair.target.processor
    with replace(prefill, measure_recall=True)(model) as report:
        reader(model, processor, max_new_tokens=1)(sample)
    return None if report.last is None else report.last.flops_share
