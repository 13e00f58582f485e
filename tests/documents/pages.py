"""Pages without anything on them, lines as a text layer has them, and the one page of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sooner.documents import Line, Page, PageDraft, PageText, read_pages
from sooner.documents.drafters import TextLayer


def blank(number: int = 1, text: PageText | None = None) -> Page:
    return Page(Path("x.pdf"), number, np.full((400, 300, 3), 255, np.uint8), text=text)


def line(text: str, x: float, y: float) -> Line:
    return Line(text, (x, y, x + 5 * len(text), y + 10), 10.0, 1.0)


def only(path: Path, **options: Any) -> Page:
    (page,) = read_pages(path, **options)
    assert isinstance(page, Page), page
    return page


def drafted(path: Path, **options: Any) -> PageDraft:
    """What the text layer's drafter makes of the one page of a file."""
    return TextLayer()(only(path, **options))
