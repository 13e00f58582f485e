"""Checkpoint folders of the robot miniature."""

from __future__ import annotations

from pathlib import Path

from sooner.models.openvla.model import OpenVLAForActionPrediction
from sooner.models.openvla.processing import OpenVLAProcessor

from ..training import save_half
from . import words


def save(model: OpenVLAForActionPrediction, folder: Path, more: str = "") -> None:
    """Write a checkpoint folder: fp16 weights, config, tokenizer, processor.

    `model` keeps its own precision: a half copy is written.

    Args:
        more: words of its tokenizer, as `words.vocabulary` takes them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_half(model, folder)
    OpenVLAProcessor.of(words.build_tokenizer(more), model.config).save_pretrained(folder)
