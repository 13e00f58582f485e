"""The three parts of the image miniature as lessons of the common trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..lessons import Lesson, begin
from .recipe import Recipe

FIXED = (
    "part", "shape", "seed", "bank", "commit", "captions", "hint", "family", "dropped",
)  # fmt: skip
"""What a resumed run must agree in."""


def build_lesson(out: Path, config: Recipe) -> Lesson:
    """The lesson of `config.part`; `out` is where the part's own files go."""
    from . import learn_classifier, learn_codes, learn_target

    lessons: dict[str, Callable[[Path, Recipe], Lesson]] = {
        "codes": learn_codes.CodesLesson,
        "classifier": learn_classifier.ClassifierLesson,
        "target": learn_target.TargetLesson,
    }
    return begin(lessons, out, config)
