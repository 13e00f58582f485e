"""Trains the robot miniature by a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from .. import lessons
from ..recipes import Options
from .learn import FIXED, PolicyLesson
from .recipe import RobotRecipe


def train(out: Path, recipe: RobotRecipe, **options: Unpack[Options]) -> Path:
    """Collect demonstrations, train, and write a checkpoint; returns its folder.

    Args:
        out: see `lessons.train`; it gets `data` too.
        recipe: the recipe.
        options: see `lessons.train`.

    Raises:
        SoonerError: `state.pt` is of another recipe; the simulator is not installed.
    """
    lesson = PolicyLesson(out, recipe, options.get("progress", True))
    return lessons.train(out, recipe, lesson, FIXED, **options)
