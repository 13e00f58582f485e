"""The card of a trained miniature: how good it is, how large, how it came about."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import torch
import transformers

from ..lessons import plain
from . import architecture, evaluate
from .recipe import Recipe

HELD_OUT = 20_011
SIZES = {"line": (1, 16), "block": (5, 16), "half page": (10, 16), "page": (20, 16)}


def measure(model: Any, processor: Any, pages: int) -> dict[str, Any]:
    """Held-out word accuracy by size of the page, by HF `generate`."""
    return {
        name: evaluate.measure(model, processor, HELD_OUT, pages, size)
        for name, size in SIZES.items()
    }


def write(folder: Path, recipe: Recipe, seconds: float, start: Path) -> Path:
    """Measure the checkpoint in `folder` and write `card.json` into it.

    Args:
        start: the folder that the recipe starts from, as the run sees it.
    """
    model, processor = evaluate.load(folder)
    pages = recipe.card_pages
    told = {
        "parameters": architecture.parameters(model),
        "layers": model.config.text_config.num_hidden_layers,
        "accuracy": {"pages each": pages, **measure(model, processor, pages)},
        "training_seconds": round(seconds),
        "steps": sum(stage.steps for stage in recipe.stages),
        "recipe": plain(recipe),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    before = start / "card.json"
    if recipe.start and before.is_file():
        kept = ("training_seconds", "steps", "recipe", "versions", "start")
        card = json.loads(before.read_text())
        told["start"] = {name: card[name] for name in kept if name in card}
    path = folder / "card.json"
    path.write_text(json.dumps(told, indent=1) + "\n")
    return path
