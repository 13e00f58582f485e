"""A page without anything on it, and a line as a text layer has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sooner.documents import Line, Page, PageText


def blank(number: int = 1, text: PageText | None = None) -> Page:
    return Page(Path("x.pdf"), number, np.full((400, 300, 3), 255, np.uint8), text=text)


def line(text: str, x: float, y: float) -> Line:
    return Line(text, (x, y, x + 5 * len(text), y + 10), 10.0, 1.0)
