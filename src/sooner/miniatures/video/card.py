"""The card of a trained miniature: how good it is, how large, how it came about."""

from __future__ import annotations

import dataclasses
import json
import platform
from pathlib import Path
from typing import Any

import torch
import transformers

from . import architecture, cases, evaluate
from .recipe import Recipe

SCENES = (1, 2, 4, 6, 8, 10)
CLIPS = 32


def measure(folder: Path, clips: int) -> dict[str, Any]:
    """Held-out accuracy of a checkpoint by number of scenes, on H.264 files, on long clips."""
    found: dict[str, Any] = {"clips": clips}
    for scenes in SCENES:
        found[f"scenes_{scenes}"] = _rounded(evaluate.evaluate(folder, clips, scenes))
    longest = min(8, SCENES[-1])
    found[f"scenes_{longest}_h264"] = _rounded(
        evaluate.evaluate(folder, clips, longest, encoded=True)
    )
    long = cases.measure(*evaluate.load(folder), clips)
    return {**found, **{name: _rounded(scores) for name, scores in long.items()}}


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in found.items()}


def earlier(card: dict[str, Any]) -> dict[str, Any]:
    """What the weights that a recipe starts from went through, out of their own card."""
    kept = ("training_seconds", "steps", "recipe", "versions", "notes", "start")
    return {name: card[name] for name in kept if name in card}


def write(folder: Path, recipe: Recipe, seconds: float) -> Path:
    """Measure the checkpoint in `folder` and write `card.json` into it."""
    model, _ = evaluate.load(folder)
    told = {
        "parameters": architecture.parameters(model),
        "accuracy": measure(folder, CLIPS),
        "training_seconds": round(seconds),
        "steps": sum(stage.steps for stage in recipe.stages),
        "recipe": {
            **dataclasses.asdict(recipe),
            "start": Path(recipe.start).name,
            "ranker": Path(recipe.ranker).name,
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    before = Path(recipe.start) / "card.json"
    if recipe.start and before.is_file():
        told["start"] = earlier(json.loads(before.read_text()))
    path = folder / "card.json"
    path.write_text(json.dumps(told, indent=1) + "\n")
    return path
