"""Trains the decoder of the world of leaves by its recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from .. import lessons
from ..recipes import Options
from .learn_leaves import FIXED, LeafLesson
from .recipe import LeafRecipe


def train(out: Path | str, config: LeafRecipe | None = None, **options: Unpack[Options]) -> Path:
    """Train it and write its checkpoint folder; arguments, result and errors as `lessons.train`."""
    config = config or LeafRecipe()
    return lessons.train(Path(out), config, LeafLesson(config), FIXED, **options)
