"""The card of the trained policy: how good it is, how large, how it came about."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import torch
import transformers

from ..lessons import plain
from . import architecture
from .recipe import Recipe


def write(folder: Path, recipe: Recipe, seconds: float, held_out: dict[str, Any]) -> Path:
    """Write `card.json` into a checkpoint folder.

    Args:
        held_out: of `PolicyLesson.check`; success rates come from `sooner act rollout`.
    """
    from ...models.openvla import OpenVLAForActionPrediction

    model = OpenVLAForActionPrediction.from_pretrained(folder)
    told = {
        "parameters": architecture.parameters(model),
        "held_out": held_out,
        "training_seconds": round(seconds),
        "steps": sum(stage.steps for stage in recipe.stages),
        "recipe": plain(recipe),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    path = folder / "card.json"
    path.write_text(json.dumps(told, indent=1) + "\n")
    return path
