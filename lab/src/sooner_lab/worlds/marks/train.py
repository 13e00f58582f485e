"""Trains the pair of the world of marks by a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from .. import lessons
from ..recipes import Options
from .learn import FIXED, MarkLesson
from .recipe import TARGET, MarkRecipe


def train(out: Path | str, config: MarkRecipe = TARGET, **options: Unpack[Options]) -> Path:
    """Train one model of the pair and write its checkpoint folder.

    Args:
        out: see `lessons.train`.
        config: the recipe.
        options: see `lessons.train`.

    Returns:
        The checkpoint folder.

    Raises:
        SoonerError: `state.pt` is of another recipe; the error says how to go on.
    """
    out = Path(out)
    return lessons.train(out, config, MarkLesson(config), FIXED, **options)
