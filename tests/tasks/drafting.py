"""Documents, drafters good and bad, and a parser without a model: all that needs no torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from sooner.documents import Page, PageDraft, Region
from sooner.tasks.parse import ParsedPage, ParsedRegion


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


class EchoParser:
    """Says what was drafted, or that nothing was; `report` are the pages that it was asked for."""

    def __init__(self, raising: dict[int, BaseException] | None = None) -> None:
        self.raising = raising or {}
        self.report: list[int] = []

    def __call__(self, page: Page, draft: Any = None) -> ParsedPage:
        self.report.append(page.number)
        if page.number in self.raising:
            raise self.raising[page.number]
        text = " ".join(draft.texts) if draft is not None and draft.texts else "nothing drafted"
        notes = [draft.reason] if draft is not None and draft.reason else []
        region = ParsedRegion(0, "Text", text, (1.0, 2.0, 9.0, 8.0), (10, 20, 90, 80))
        return ParsedPage(
            page.source.name, page.number, markdown=f"{text}\n", raw=text, regions=[region],
            size=page.size, notes=notes, seconds={"drafter": 0.0},
        )  # fmt: skip


class SayNumber:
    """A drafter that says which page it was given."""

    name = "number"

    def __call__(self, page: Page) -> PageDraft:
        return PageDraft([Region(None, drafts=[f"number {page.number}"])], 0.0, self.name)


class Raise(SayNumber):
    """Breaks at page 2."""

    def __call__(self, page: Page) -> PageDraft:
        if page.number == 2:
            raise RuntimeError("out of ink")
        return super().__call__(page)


class Die(SayNumber):
    """Takes its process with it at page 2."""

    def __call__(self, page: Page) -> PageDraft:
        if page.number == 2:
            os._exit(7)
        return super().__call__(page)
