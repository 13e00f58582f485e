"""Trains the three parts of the motion miniature, lessons of the common trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from .. import lessons
from ..lessons import Lesson, begin
from ..recipes import Options
from . import learn_probe, learn_target, learn_tokenizer
from .recipe import MotionRecipe

FIXED = ("part", "shape", "seed", "bank", "hint")


def build_lesson(out: Path, config: MotionRecipe) -> Lesson:
    """The lesson of `config.part`; `out` is where the part's own files go."""
    kinds: dict[str, Callable[[Path, MotionRecipe], Lesson]] = {
        "tokenizer": learn_tokenizer.TokenizerLesson,
        "target": learn_target.MotionTargetLesson,
        "probe": learn_probe.ProbeLesson,
    }
    return begin(kinds, out, config)


def train(out: Path | str, config: MotionRecipe, **options: Unpack[Options]) -> Path:
    """Train one part and write its checkpoint folder.

    `sooner train miniature motion` calls this once with each of `RECIPES`, in their order.

    Args:
        out: see `lessons.train`. Parts that need the tokenizer look for `../tokenizer/checkpoint`.
        config: the recipe.
        options: see `lessons.train`.

    Returns:
        The checkpoint folder.

    Raises:
        SoonerError: `state.pt` is of another recipe, or the tokenizer is missing; the error
            says how to go on.
    """
    out = Path(out)
    return lessons.train(out, config, build_lesson(out, config), FIXED, **options)
