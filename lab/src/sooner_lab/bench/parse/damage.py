"""Degraded drafts: noise on OCR's picture, in its text, and in its boxes (figure 3)."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from PIL import Image, ImageFilter

from sooner.documents import Page, PageDraft

LETTERS = np.array(list(string.ascii_lowercase))
RARE = np.array(list("jqvwxz"))
KEPT = "\n\t|"
"""Signs that make lines and tables."""


def degraded(page: Page, level: float, rng: np.random.Generator) -> Page:
    """The page as a bad copy shows it: blurred, coarse, pale and noisy.

    Args:
        level: 0 for as it is; at 1, letters run into each other.
    """
    image = Image.fromarray(page.picture)
    small = (round(side * (1 - 0.5 * level)) for side in image.size)
    coarse = image.resize(tuple(small), Image.Resampling.BILINEAR)  # type: ignore[arg-type]
    image = coarse.resize(image.size, Image.Resampling.BILINEAR)
    image = image.filter(ImageFilter.GaussianBlur(1.2 * level))
    pale = 255 - (255 - np.asarray(image, np.float32)) * (1 - 0.4 * level)
    pale += rng.normal(0, 25 * level, pale.shape[:2])[..., None]
    return replace(page, picture=np.clip(pale, 0, 255).round().astype(np.uint8))


def misspelt(draft: PageDraft, rate: float, rng: np.random.Generator) -> PageDraft:
    """The draft with a share of its letters read wrongly: another one, none, or one more."""
    return _with_texts(draft, lambda text: "".join(_letters(text, rate, rng)))


def _letters(text: str, rate: float, rng: np.random.Generator) -> list[str]:
    chances, others = rng.random(len(text)), rng.choice(LETTERS, len(text))
    said = []
    for letter, chance, other in zip(text, chances, others, strict=True):
        if letter in KEPT or chance >= rate:
            said.append(letter)
        elif chance < 0.5 * rate:
            said.append(str(other))
        elif chance < 0.75 * rate:
            said.append(letter + str(other))
    return said


def jittered(draft: PageDraft, share: float, rng: np.random.Generator) -> PageDraft:
    """The draft with each edge of its boxes moved by up to a share of the box's own side."""
    regions = []
    for region in draft.regions:
        if region.bbox is not None:
            x0, y0, x1, y1 = region.bbox
            moved = rng.uniform(-share, share, 4) * (x1 - x0, y1 - y0, x1 - x0, y1 - y0)
            a, b, c, d = (float(edge) for edge in np.array(region.bbox) + moved)
            region = replace(region, bbox=(min(a, c), min(b, d), max(a, c), max(b, d)))
        regions.append(region)
    return replace(draft, regions=regions)


def garbage(draft: PageDraft, rng: np.random.Generator) -> PageDraft:
    """The same regions with words that no page has."""
    return _with_texts(
        draft, lambda text: " ".join("".join(rng.choice(RARE, 5)) for _ in text.split())
    )


def _with_texts(draft: PageDraft, change: Callable[[str], str]) -> PageDraft:
    regions = [
        # How sure the drafter was of the text that it read says nothing about this one.
        replace(region, drafts=[change(text) for text in region.drafts], confidence=None)
        for region in draft.regions
    ]
    return replace(draft, regions=regions)
