"""Checkpoint folders: what `from_pretrained` of transformers' Auto classes reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
)

from ..checkpoints import save_half
from . import architecture, words

NUM_FRAMES = 16


def build_processor(num_frames: int = NUM_FRAMES) -> LlavaOnevisionProcessor:
    """The real LLaVA-OneVision processor at the miniature's sizes.

    Args:
        num_frames: frames sampled from a video that comes with its metadata. As in all of
            transformers, a video of fewer frames is refused.
    """
    side = architecture.IMAGE_SIDE
    size = {"height": side, "width": side}
    pixels: dict[str, Any] = {"size": size, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    return LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(**pixels, image_grid_pinpoints=[[side, side]]),
        tokenizer=words.build_tokenizer(),
        video_processor=LlavaOnevisionVideoProcessor(
            **pixels, do_sample_frames=True, num_frames=num_frames
        ),
        num_image_tokens=(side // architecture.PATCH) ** 2,
        vision_feature_select_strategy="full",
        chat_template=words.CHAT_TEMPLATE,
    )


def save(model: LlavaOnevisionForConditionalGeneration, folder: Path) -> None:
    """Write a checkpoint folder: fp16 weights, configs, tokenizer, processor, chat template.

    `model` keeps its own precision: a half copy is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_half(model, folder)
    build_processor().save_pretrained(folder)
