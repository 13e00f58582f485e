"""The card of a trained miniature: how good it is, how large, how it came about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import cards
from ..recipes import plain
from . import architecture, evaluate
from .recipe import DocumentRecipe

HELD_OUT = 20_011
SIZES = {"line": (1, 16), "block": (5, 16), "half page": (10, 16), "page": (20, 16)}


def measure(model: Any, processor: Any, recipe: DocumentRecipe) -> dict[str, Any]:
    """Held-out word accuracy by size of the page, by HF `generate`."""
    return {
        name: evaluate.measure(model, processor, HELD_OUT, recipe.card_pages, size)
        for name, size in SIZES.items()
    }


def write(folder: Path, recipe: DocumentRecipe, seconds: float, start: Path) -> Path:
    """Measure the checkpoint in `folder` and write `card.json` into it.

    Args:
        start: the folder that the recipe starts from, as the run sees it.
    """
    model, processor = evaluate.load(folder)
    figures = {
        "parameters": architecture.parameters(model),
        **cards.depth(model, folder),
        "accuracy": {"pages each": recipe.card_pages, **measure(model, processor, recipe)},
    }
    steps = sum(stage.steps for stage in recipe.stages)
    begun = start if recipe.start else None
    return cards.write(folder, figures, plain(recipe), steps, seconds, begun)
