"""Checkpoint folders: what `from_pretrained` of transformers reads and this package writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import JanusForConditionalGeneration, JanusImageProcessor, JanusProcessor
from transformers.models.janus.modeling_janus import JanusVQVAE

from .. import training
from . import architecture, words, world


def build_processor() -> JanusProcessor:
    """The real Janus processor at the miniature's sizes."""
    side = {"height": world.SIDE, "width": world.SIDE}
    return JanusProcessor(
        image_processor=JanusImageProcessor(
            size=side, min_size=1, image_mean=[0.5] * 3, image_std=[0.5] * 3
        ),
        tokenizer=words.build_tokenizer(),
        num_image_tokens=architecture.TOKENS,
    )


def save(model: JanusForConditionalGeneration, folder: Path) -> None:
    """Write a checkpoint folder: fp16 weights, configs, tokenizer, processor.

    `model` keeps its own precision: a half copy is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config: Any = model.config
    config.vq_config._name_or_path = ""  # where the codes came from is nobody's business
    training.save_half(model, folder)
    build_processor().save_pretrained(folder)


def load(folder: Path | str) -> tuple[Any, Any]:
    """Model in fp32, in evaluation mode, and processor of a checkpoint folder."""
    return training.load(folder, JanusForConditionalGeneration, JanusProcessor)


def load_codes(folder: Path | str) -> JanusVQVAE:
    """An autoencoder alone, in fp32 and evaluation mode."""
    return JanusVQVAE.from_pretrained(folder, dtype=torch.float32).eval()
