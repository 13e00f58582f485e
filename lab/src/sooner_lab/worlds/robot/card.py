"""The card of the trained policy: how good it is, how large, how it came about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sooner.models import silent

from .. import cards
from ..recipes import plain
from . import architecture
from .recipe import RobotRecipe


def write(folder: Path, recipe: RobotRecipe, seconds: float, held_out: dict[str, Any]) -> Path:
    """Write `card.json` into a checkpoint folder.

    Args:
        held_out: of `PolicyLesson.check`; success rates come from `sooner act rollout`.
    """
    from sooner.models.openvla.model import OpenVLAForActionPrediction

    model = silent.as_run(OpenVLAForActionPrediction.from_pretrained(folder), folder)
    figures = {
        "parameters": architecture.parameters(model),
        **cards.depth(model, folder),
        "held_out": held_out,
    }
    steps = sum(stage.steps for stage in recipe.stages)
    return cards.write(folder, figures, plain(recipe), steps, seconds)
