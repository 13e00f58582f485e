"""Trains the three parts of the image miniature, lessons of the common trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..lessons import Lesson, trainer
from . import learn_classifier, learn_codes, learn_target
from .recipe import ImageRecipe

FIXED = (
    "part", "shape", "seed", "bank", "commit", "captions", "hint", "family", "dropped",
)  # fmt: skip
"""Fields of the recipe in which a resumed run must agree."""


LESSONS: dict[str, Callable[[Path, ImageRecipe], Lesson]] = {
    "codes": learn_codes.CodesLesson,
    "classifier": learn_classifier.ClassifierLesson,
    "target": learn_target.ImageTargetLesson,
}


def build_lesson(out: Path, config: ImageRecipe) -> Lesson:
    """The lesson of `config.part`; the run's own files go to `out`."""
    return LESSONS[config.part](out, config)


train = trainer(build_lesson, FIXED)
