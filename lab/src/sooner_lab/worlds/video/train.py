"""Trains the video miniature by a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from .. import lessons
from ..recipes import Options
from .learn import FIXED, CaptionLesson
from .recipe import TARGET, VideoRecipe


def train(out: Path | str, config: VideoRecipe = TARGET, **options: Unpack[Options]) -> Path:
    """Train one model of the pair and write its checkpoint folder.

    `sooner train miniature video` calls this once with each of `RECIPES`, in their order.

    Args:
        out: see `lessons.train`.
        config: the recipe.
        options: see `lessons.train`.

    Returns:
        The checkpoint folder.

    Raises:
        SoonerError: `state.pt` is of another recipe, or there is no checkpoint to start from or to
            rank with; the error says how to go on.
    """
    out = Path(out)
    return lessons.train(out, config, CaptionLesson(config, out), FIXED, **options)
