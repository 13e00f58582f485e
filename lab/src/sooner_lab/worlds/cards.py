"""The model card of each trained part: `card.json` beside its weights."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from sooner.io import write_json
from sooner.models import silent

NAME = "card.json"
KEPT = ("training_seconds", "steps", "recipe", "versions", "notes", "start")
"""What a card tells of the weights that a recipe started from."""


def write(
    folder: Path,
    figures: Mapping[str, Any],
    recipe: Mapping[str, Any],
    steps: int,
    seconds: float,
    start: Path | None = None,
) -> Path:
    """Write the card of the checkpoint in `folder`.

    Args:
        figures: how good it is, how large.
        recipe: as plain data.
        steps, seconds: of training, by this recipe.
        start: the checkpoint folder that it started from, if it did; its card is told, too.

    Returns:
        The card.
    """
    told = {
        **figures,
        "training_seconds": round(seconds),
        "steps": steps,
        "recipe": dict(recipe),
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
        },
    }
    if start is not None and (start / NAME).is_file():
        before = json.loads((start / NAME).read_text())
        told["start"] = {name: before[name] for name in KEPT if name in before}
    path = folder / NAME
    write_json(told, path)
    return path


def depth(model: Any, folder: Path) -> dict[str, int]:
    """How many layers the decoder of a model loaded from `folder` runs, and how many of these
    are trained; the others are silent (`models/silent.py`)."""
    told = silent.read_depth(folder)
    layers = int(model.config.get_text_config(decoder=True).num_hidden_layers)
    return {"layers": layers, "trained_layers": len(told.trained) if told else layers}


def rounded(found: Mapping[str, float]) -> dict[str, float]:
    """Figures as a card shows them."""
    return {name: round(value, 4) for name, value in found.items()}
