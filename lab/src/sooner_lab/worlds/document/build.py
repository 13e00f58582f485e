"""Checkpoint folders: what `from_pretrained` of transformers' Auto classes reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    Qwen2VLImageProcessor,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from sooner.io import write_json

from ..training import save_half
from . import words
from .architecture import MERGE, PATCH
from .page import CELL
from .world import PAGE

SMALLEST, LARGEST = 32 * 192, 1024 * 1024
"""Pixels of a picture that is neither enlarged nor shrunk."""


def build_processor() -> Qwen3VLProcessor:
    """The real Qwen3-VL processor; it leaves pages of multiples of 32 pixels as they are."""
    pixels: dict[str, Any] = {
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "size": {"shortest_edge": SMALLEST, "longest_edge": LARGEST},
    }
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        tokenizer=words.build_tokenizer(),
        video_processor=Qwen3VLVideoProcessor(**pixels),
        chat_template=words.CHAT_TEMPLATE,
    )


def save(model: Qwen3VLForConditionalGeneration, folder: Path) -> None:
    """Write a checkpoint folder: fp16 weights, configs, tokenizer, processor, chat template, and
    `sooner.json`, which says how pages are parsed with it.

    `model` keeps its own precision: a half copy is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_half(model, folder)
    build_processor().save_pretrained(folder)
    size = [PAGE[1] * CELL, PAGE[0] * CELL]
    habits = {"prompt": words.PROMPT, "form": "markdown-spaced", "size": size}
    write_json({"parse": habits}, folder / "sooner.json")
