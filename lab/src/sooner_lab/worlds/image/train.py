"""Trains the three parts of the image miniature, lessons of the common trainer."""

from __future__ import annotations

from ..lessons import trainer
from .learn_classifier import ClassifierLesson
from .learn_codes import CodesLesson
from .learn_target import ImageTargetLesson

train = trainer({"codes": CodesLesson, "classifier": ClassifierLesson, "target": ImageTargetLesson})
