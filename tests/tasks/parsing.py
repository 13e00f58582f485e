"""Documents, drafters and a parser without a model, for the tests of parsing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from reportlab.pdfgen.canvas import Canvas
from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

import tiny
from sooner.documents import Page, PageDraft, Region
from sooner.tasks.loading import Loaded, Pair
from sooner.tasks.parse import ParsedPage, ParsedRegion
from sooner.tasks.parse.forms import GENERAL
from tasks.test_task_families import PATCHES, tokenizer

TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


def pdf(path: Path, pages: int = 3, **options: Any) -> Path:
    """Small pages of one line each."""
    canvas = Canvas(str(path), pagesize=(60, 40), **options)
    for number in range(1, pages + 1):
        canvas.setFont("Helvetica", 8)
        canvas.drawString(5, 20, f"page {number} says so")
        canvas.showPage()
    canvas.save()
    return path


def picture(path: Path, width: int = 60, height: int = 40) -> Path:
    Image.new("RGB", (width, height), "white").save(path)
    return path


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


def qwen3_vl() -> Pair:
    """A tiny random Qwen3-VL with its own processor; word `w12` is token 12."""
    processor = Qwen3VLProcessor(
        Qwen2VLImageProcessor(patch_size=7, merge_size=2, min_pixels=28 * 28), tokenizer(),
        Qwen3VLVideoProcessor(**PATCHES, fps=2), chat_template=TEMPLATE,
    )  # fmt: skip
    return Pair(Loaded("qwen3_vl", tiny.model("qwen3_vl"), processor), prompt="w8 w9 w10")


class EchoParser:
    """Says what was drafted, or that nothing was; `told` are the pages that it was asked for."""

    def __init__(self, raising: dict[int, BaseException] | None = None) -> None:
        self.ask = GENERAL
        self.raising = raising or {}
        self.told: list[int] = []

    def __call__(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
        self.told.append(page.number)
        if page.number in self.raising:
            raise self.raising[page.number]
        text = " ".join(draft.texts) if draft is not None and draft.texts else "nothing drafted"
        notes = [draft.reason] if draft is not None and draft.reason else []
        region = ParsedRegion(0, "Text", text, (1.0, 2.0, 9.0, 8.0), (10, 20, 90, 80))
        return ParsedPage(
            page.source.name, page.number, markdown=f"{text}\n", raw=text, regions=[region],
            size=page.size, notes=notes,
        )  # fmt: skip
