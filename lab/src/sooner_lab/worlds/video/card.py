"""The card of a trained miniature: how good it is, how large, how it came about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import cards
from . import cases, evaluate
from .recipe import VideoRecipe

SCENES = (1, 2, 4, 6, 8, 10)
CLIPS = 32


def measure(folder: Path, clips: int) -> dict[str, Any]:
    """Held-out accuracy of a checkpoint by number of scenes, on H.264 files, on long clips."""
    figures: dict[str, Any] = {"clips": clips}
    for scenes in SCENES:
        figures[f"scenes_{scenes}"] = cards.rounded(evaluate.evaluate(folder, clips, scenes))
    longest = min(8, SCENES[-1])
    figures[f"scenes_{longest}_h264"] = cards.rounded(
        evaluate.evaluate(folder, clips, longest, encoded=True)
    )
    long = cases.measure(*evaluate.load(folder), clips)
    return {**figures, **{name: cards.rounded(scores) for name, scores in long.items()}}


def write(folder: Path, recipe: VideoRecipe, seconds: float) -> Path:
    """Measure the checkpoint in `folder` and write `card.json` into it."""
    model, _ = evaluate.load(folder)
    figures = {**cards.depth(model, folder), "accuracy": measure(folder, CLIPS)}
    start = Path(recipe.start) if recipe.start else None
    return cards.write(folder, model, recipe, seconds, figures, start)
