"""Trains the three parts of the motion miniature, lessons of the common trainer."""

from __future__ import annotations

from ..lessons import trainer
from .learn_probe import ProbeLesson
from .learn_target import MotionTargetLesson
from .learn_tokenizer import TokenizerLesson

train = trainer({"tokenizer": TokenizerLesson, "probe": ProbeLesson, "target": MotionTargetLesson})
