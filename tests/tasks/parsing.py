"""Pages, drafts and a model for the tests of parsing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers import (
    Qwen2VLImageProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

import tiny
from sooner.documents import Page, PageDraft, Region
from sooner.tasks.loading import Loaded, ModelPair
from tasks.test_task_families import PATCHES, tokenizer

TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


def noise_page(width: int = 84, height: int = 112, seed: int = 2) -> Page:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Page(Path("noise.png"), 1, pixels)


def draft_of(page: Page, *texts: str | Sequence[str]) -> PageDraft:
    """One region a text, from top to bottom; several drafts where there are several texts."""
    step = page.height / max(len(texts), 1)
    regions = [
        Region(
            (0, order * step, page.width, (order + 1) * step),
            order=order,
            drafts=[text] if isinstance(text, str) else list(text),
        )
        for order, text in enumerate(texts)
    ]
    return PageDraft(regions, 0.0, "made-up", page.size)


def qwen3_vl() -> ModelPair:
    """A tiny random Qwen3-VL with its own processor; word `w12` is token 12."""
    processor = Qwen3VLProcessor(
        Qwen2VLImageProcessor(patch_size=7, merge_size=2, min_pixels=28 * 28), tokenizer(),
        Qwen3VLVideoProcessor(**PATCHES, fps=2), chat_template=TEMPLATE,
    )  # fmt: skip
    return ModelPair(Loaded("qwen3_vl", tiny.model("qwen3_vl"), processor), prompt="w8 w9 w10")


BROKEN = (
    '[{"bbox": [10, 20, 30, 40], "category": "Title", "text": "# Fruit"}, '
    '{"bbox": [10, 50, 30, 60], "category": "Text", "text": "cut o'
)
