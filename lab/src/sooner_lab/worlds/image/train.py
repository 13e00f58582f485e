"""Trains the three parts of the image miniature, lessons of the common trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from .. import lessons
from ..lessons import Lesson, begin
from ..recipes import Options
from . import learn_classifier, learn_codes, learn_target
from .recipe import ImageRecipe

FIXED = (
    "part", "shape", "seed", "bank", "commit", "captions", "hint", "family", "dropped",
)  # fmt: skip
"""Fields of the recipe in which a resumed run must agree."""


def build_lesson(out: Path, config: ImageRecipe) -> Lesson:
    """The lesson of `config.part`; `out` is where the part's own files go."""
    kinds: dict[str, Callable[[Path, ImageRecipe], Lesson]] = {
        "codes": learn_codes.CodesLesson,
        "classifier": learn_classifier.ClassifierLesson,
        "target": learn_target.ImageTargetLesson,
    }
    return begin(kinds, out, config)


def train(out: Path | str, config: ImageRecipe, **options: Unpack[Options]) -> Path:
    """Train one part and write its checkpoint folder.

    `sooner train miniature image` calls this once with each of `RECIPES`, in their order.

    Args:
        out: see `lessons.train`. The classifier and the target read
            `../codes/checkpoint`, and the target's card `../classifier/checkpoint`.
        config: the recipe.
        options: see `lessons.train`.

    Returns:
        The checkpoint folder.

    Raises:
        SoonerError: `state.pt` is of another recipe, or a part that this one is built on has
            not been trained yet; the error
            says how to go on.
    """
    out = Path(out)
    return lessons.train(out, config, build_lesson(out, config), FIXED, **options)
