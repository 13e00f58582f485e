"""Checkpoint folders of the robot miniature."""

from __future__ import annotations

from pathlib import Path

from sooner.models.openvla.model import OpenVLAForActionPrediction
from sooner.models.openvla.processing import OpenVLAProcessor

from ..training import save_half
from . import words


def save(model: OpenVLAForActionPrediction, folder: Path) -> None:
    """Write a checkpoint folder: fp16 weights, config, tokenizer, processor.

    `model` keeps its own precision: a half copy is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_half(model, folder)
    OpenVLAProcessor.of(words.build_tokenizer(), model.config).save_pretrained(folder)
