"""Trains the document miniature by a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from .. import lessons
from ..recipes import Options
from .learn import FIXED, ReadingLesson
from .recipe import TARGET, DocumentRecipe


def train(out: Path | str, config: DocumentRecipe = TARGET, **options: Unpack[Options]) -> Path:
    """Train the model and write its checkpoint folder.

    Args:
        out: see `lessons.train`.
        config: the recipe.
        options: see `lessons.train`.

    Returns:
        The checkpoint folder.

    Raises:
        SoonerError: `state.pt` is of another recipe, or there is no fitting checkpoint to start
            from; the error says how to go on.
    """
    out = Path(out)
    return lessons.train(out, config, ReadingLesson(out, config), FIXED, **options)
