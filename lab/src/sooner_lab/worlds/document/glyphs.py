"""Bitmaps of words in Pillow's embedded font, cached by word and style."""

from __future__ import annotations

import functools

import numpy as np
from PIL import Image, ImageDraw, ImageFont

LINE = 32
"""Height of a text line in pixels: one row of visual tokens."""
SIZES = {"text": 20, "title": 26}
BASELINE = 23
"""Baseline of the letters, in pixels from the top of their line."""
BULLET = "-"


@functools.cache
def _font(style: str) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(SIZES[style])
    assert isinstance(font, ImageFont.FreeTypeFont)  # Pillow without FreeType has no such font
    return font


@functools.cache
def ink(word: str, style: str, bullet: bool = False) -> np.ndarray:
    """Blackness of each pixel, 0 to 1: float32 `[LINE, width]`, read-only.

    Args:
        style: a key of `SIZES`.
        bullet: draw a list's dot instead of the word.
    """
    picture = Image.new("L", (width(word, style, bullet), LINE), 0)
    draw = ImageDraw.Draw(picture)
    if bullet:
        draw.ellipse((2, 13, 9, 20), fill=255)
    else:
        draw.text((0, BASELINE), word, fill=255, font=_font(style), anchor="ls")
    drawn = np.asarray(picture, dtype=np.float32) / 255
    drawn.setflags(write=False)
    return drawn


@functools.cache
def width(word: str, style: str, bullet: bool = False) -> int:
    """Pixels that a word takes."""
    return 12 if bullet else int(np.ceil(_font(style).getlength(word))) + 1
