"""The model card of each trained part: `card.json` beside its weights."""

from __future__ import annotations

import dataclasses
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
STARTED = ("training_seconds", "steps", "recipe", "versions", "notes", "start")
"""What a card tells of the weights that a recipe started from."""


def plain(config: Any) -> dict[str, Any]:
    """A recipe as JSON holds it."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def parameters(model: torch.nn.Module) -> int:
    """Number of weights, each counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def write(
    folder: Path,
    model: torch.nn.Module,
    config: Any,
    seconds: float,
    figures: Mapping[str, Any],
    start: Path | None = None,
) -> Path:
    """Write the card of the checkpoint in `folder`.

    Args:
        model: what was loaded from there.
        config: the recipe; folders that it names are told by their last part.
        seconds: of training.
        figures: how good the model is.
        start: the checkpoint folder that it started from, if it did; the card repeats its card.

    Returns:
        The card.
    """
    recipe = plain(config)
    recipe |= {name: Path(recipe[name]).name for name in ("start", "ranker") if recipe.get(name)}
    card = {
        "part": config.part,
        "parameters": parameters(model),
        **figures,
        "training_seconds": round(seconds),
        "steps": sum(stage.steps for stage in config.stages),
        "recipe": recipe,
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
        },
    }
    if start is not None and (start / NAME).is_file():
        before = json.loads((start / NAME).read_text())
        card["start"] = {name: before[name] for name in STARTED if name in before}
    path = folder / NAME
    write_json(card, path)
    return path


def depth(model: Any, folder: Path) -> dict[str, int]:
    """How many layers the decoder of a model loaded from `folder` runs, and how many of these
    are trained; the others are silent (`models/silent.py`)."""
    note = silent.read_depth(folder)
    layers = int(model.config.get_text_config(decoder=True).num_hidden_layers)
    return {"layers": layers, "trained_layers": len(note.trained) if note else layers}


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Figures as a card shows them."""
    return {name: round(value, 4) for name, value in figures.items()}
