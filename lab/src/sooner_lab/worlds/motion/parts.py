"""The three parts of the motion miniature as lessons of the common trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..lessons import Lesson, begin
from .recipe import Recipe

FIXED = ("part", "shape", "seed", "bank", "hint")


def build_lesson(out: Path, config: Recipe) -> Lesson:
    """The lesson of `config.part`; `out` is where the part's own files go."""
    from . import learn_probe, learn_target, learn_tokenizer

    lessons: dict[str, Callable[[Path, Recipe], Lesson]] = {
        "tokenizer": learn_tokenizer.TokenizerLesson,
        "target": learn_target.TargetLesson,
        "probe": learn_probe.ProbeLesson,
    }
    return begin(lessons, out, config)
