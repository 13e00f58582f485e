"""The pair of the world of marks: shapes, words, checkpoint folders.

Both are LLaVA-OneVision. Their vision towers are one SigLIP layer whose attention adds nothing, so
that a visual token tells of its own cell alone: which tokens a draft is left with then matters. The
target is deep and narrow and most of its layers are silent (`models/silent.py`): a stated cost. The
draft's attention is wide, so that its step is dominated by the keys it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlavaOnevisionForConditionalGeneration, LlavaOnevisionProcessor

from ..video import architecture, build
from ..video.words import with_characters
from . import draw, world

PATCH = draw.CELL // 2  # a frame's patches are pooled 2x2
MAX_POSITIONS = 8192
ROPE = {"rope_type": "default", "rope_theta": 1e6}  # Qwen2's own; half of a head hardly turns

PROMPT = "describe the marks ."
PROMPTS = (
    PROMPT,
    "describe the video .",
    "describe this video in detail .",
    "what do we see in this video ?",
)


@dataclass(frozen=True)
class MarkShape:
    """Sizes of one model; `layers` are those it runs, `vocab` must hold every token."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    vision_layers: int
    vision_width: int
    vision_heads: int


TARGET = MarkShape(24, 160, 2, 2, 32, 320, 256, 1, 96, 4)
DRAFT = MarkShape(4, 128, 4, 4, 64, 256, 192, 1, 64, 4)


def vocabulary() -> list[str]:
    """All tokens in the order of their ids; trained weights depend on it."""
    told = " ".join(
        (
            *PROMPTS, world.OPENING, *world.NAMES, *world.GLYPHS, *world.ROWS, *world.COLUMNS,
            "user assistant system what is in which row column has seen at",
        )
    )  # fmt: skip
    return with_characters(word for word in told.split() if word.isalpha())


def build_model(shape: MarkShape) -> LlavaOnevisionForConditionalGeneration:
    """A fresh fp32 model; weights come from torch's global generator, as everywhere in HF.

    Raises:
        ValueError: `shape.vocab` is smaller than the vocabulary.
    """
    config = architecture.build_config(
        shape,
        vocabulary(),
        draw.SIDE,
        PATCH,
        head_dim=shape.head_dim,
        rope_parameters=ROPE,
        max_position_embeddings=MAX_POSITIONS,
        initializer_range=shape.width**-0.5,  # HF's 0.02 is of widths of thousands
    )
    model = architecture.from_config(config)
    keep_patches_apart(model)
    return model


def keep_patches_apart(model: LlavaOnevisionForConditionalGeneration) -> None:
    """Zero what the tower's attention adds, and freeze it: a patch then sees itself alone."""
    for layer in model.model.vision_tower.encoder.layers:
        for parameter in layer.self_attn.out_proj.parameters():
            torch.nn.init.zeros_(parameter)
        layer.self_attn.requires_grad_(False)


def build_processor(frames: int = world.FRAMES) -> LlavaOnevisionProcessor:
    """The real LLaVA-OneVision processor at the world's sizes; it samples `frames` of a video."""
    return build.build_processor(frames, vocabulary(), draw.SIDE, PATCH)


def save(model: LlavaOnevisionForConditionalGeneration, folder: Path) -> None:
    """Write a checkpoint folder, see `worlds.video.build.save`."""
    build.save(model, folder, build_processor())
