"""Trains the three parts of the motion miniature, lessons of the common trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..lessons import Lesson, trainer
from . import learn_probe, learn_target, learn_tokenizer
from .recipe import MotionRecipe

FIXED = ("part", "shape", "seed", "bank", "hint")


LESSONS: dict[str, Callable[[Path, MotionRecipe], Lesson]] = {
    "tokenizer": learn_tokenizer.TokenizerLesson,
    "target": learn_target.MotionTargetLesson,
    "probe": learn_probe.ProbeLesson,
}


def build_lesson(out: Path, config: MotionRecipe) -> Lesson:
    """The lesson of `config.part`; the run's own files go to `out`."""
    return LESSONS[config.part](out, config)


train = trainer(build_lesson, FIXED)
