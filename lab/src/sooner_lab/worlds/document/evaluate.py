"""How well a miniature reads pages that it has never seen, through its own processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sooner import miniatures

from .. import checkpoints
from . import render, world
from .page import DrawnPage

TOKENS = 480
"""Most tokens of an answer; full pages have up to 250, large ones up to 430."""


def load(folder: Path | str) -> tuple[Any, Any]:
    """A checkpoint's model in fp32, in eval mode, and its processor."""
    from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

    return checkpoints.load(folder, Qwen3VLForConditionalGeneration, AutoProcessor)


def build_inputs(processor: Any, pictures: Sequence[np.ndarray]) -> Any:
    """Model inputs for pictures, uint8 `[height, width, 3]`."""
    prompt = miniatures.find("document").prompt
    content = [{"type": "image"}, {"type": "text", "text": prompt}]
    chat = [{"role": "user", "content": content}]
    text = processor.apply_chat_template(chat, add_generation_prompt=True)
    return processor(
        text=[text] * len(pictures), images=list(pictures), return_tensors="pt", padding=True
    )


@torch.no_grad()
def parse(model: Any, processor: Any, pictures: Sequence[np.ndarray], limit: int = TOKENS) -> Any:
    """Greedy Markdown of a batch of pictures by HF `generate`."""
    inputs = build_inputs(processor, pictures)
    was = model.training
    made = model.eval().generate(**inputs, do_sample=False, max_new_tokens=limit)
    model.train(was)
    answers = made[:, inputs["input_ids"].shape[1] :]
    return processor.batch_decode(answers, skip_special_tokens=True)


def distance(first: Sequence[str], other: Sequence[str]) -> int:
    """Levenshtein's: words to insert, drop or replace."""
    line = list(range(len(other) + 1))
    for row, left in enumerate(first, 1):
        corner, line[0] = line[0], row
        for column, right in enumerate(other, 1):
            corner, line[column] = (
                line[column],
                min(line[column] + 1, line[column - 1] + 1, corner + (left != right)),
            )
    return line[-1]


def score(texts: Sequence[str], pages: Sequence[DrawnPage]) -> dict[str, float]:
    """Word accuracy (1 - word edits / words, all of Markdown's tokens counted), and pages right."""
    edits = total = 0
    for text, page in zip(texts, pages, strict=True):
        truth = page.markdown.split()
        edits += min(distance(text.split(), truth), len(truth))
        total += len(truth)
    right = [text == page.markdown for text, page in zip(texts, pages, strict=True)]
    return {"words": round(1 - edits / total, 4), "pages": round(float(np.mean(right)), 4)}


def measure(
    model: Any, processor: Any, seed: int, count: int, size: tuple[int, int] = world.PAGE
) -> dict[str, float]:
    """Scores on `count` pages of `size` rows and columns, drawn from `seed`."""
    rng = np.random.default_rng(seed)
    pages = [world.sample_page(rng, *size) for _ in range(count)]
    pictures = [render.rgb(render.vary(render.draw(page), rng)) for page in pages]
    limit = max(len(page.pieces) for page in pages) + 16
    texts = []
    for begin in range(0, count, 16):
        texts += parse(model, processor, pictures[begin : begin + 16], min(limit, TOKENS))
    return score(texts, pages)
