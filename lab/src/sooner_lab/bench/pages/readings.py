"""Two readings of a page: a rough one that the prompt holds, and a better one that is drafted.

A model of text can't see a page, so its prompt holds what OCR reads of a small picture. The drafts
are what OCR reads of a large one. So a draft is no copy of the prompt, and neither is the answer,
as with a model that sees the page.

Two kinds of pages: those of real PDFs, whose Markdown the model is asked for, and pages of code, in
which a variable is to be renamed: functions of Python's standard library, drawn and read by OCR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sooner.documents import Page, Resolution, draft_texts, read_pages
from sooner.documents.drafters import OCR
from sooner.errors import SoonerError

from ..real.settings import TUNED_ON
from ..real.texts import ocr_engine, renamings

PDF_PROMPT = "Write this page as Markdown. Keep every word.\n\n"
PROMPT_DPI = 110
"""Resolution at which pages of PDFs are read."""
WORDS = (60, 220)
"""Words of the text layer of a page of a PDF: more would not fit into the answer's limit."""
CANDIDATES = 20
"""Pages of a PDF that are looked at for each that is wanted."""
LINES = 5
"""Lines of a region of code."""
ROUGH_FONT, DRAFT_FONT = 13, 22
"""Sizes of the letters of both pictures of a page of code, in pixels."""


@dataclass(frozen=True)
class RegionReading:
    """A region of a page.

    Attributes:
        rough: its text in the rough reading.
        draft: its text as it is drafted, with what stands between it and the next region.
        confidence: of OCR in the draft's least sure line, from 0 to 1.
    """

    rough: str
    draft: str
    confidence: float


@dataclass(frozen=True)
class Reading:
    """A page.

    Attributes:
        source: name of its file or module.
        number: of the page, from 1.
        ask: what the model is asked; the rough reading of a page or region follows.
        rough: the whole page in the rough reading.
        truth: its text.
        regions: in reading order; none of a page of which nothing is drafted.
    """

    source: str
    number: int
    ask: str
    rough: str
    truth: str
    regions: tuple[RegionReading, ...] = ()


def pdf_pages(folder: Path, count: int) -> Iterator[Reading]:
    """Yields so many pages of each PDF of a folder, in the order of names.

    Raises:
        SoonerError: the folder has no PDF.
    """
    files = sorted(folder.glob("*.pdf"))
    if not files:
        raise SoonerError(f"--pdfs: '{folder}' has no PDF; give a folder of PDFs with text layers")
    ocr = OCR(threads=2)
    for file in files:
        for number, words in _numbers(file, count):
            page = next(_pages(file, str(number), PROMPT_DPI))
            rough = "\n".join(draft_texts(ocr(page)))
            yield Reading(file.stem, number, PDF_PROMPT, rough, words)


def _numbers(file: Path, count: int) -> list[tuple[int, str]]:
    """Returns numbers and words of pages of the right length, spread over the document."""
    low, high = WORDS
    total = next(_pages(file, "1", 36)).of
    looks = count * CANDIDATES
    places = sorted({1 + (2 * place + 1) * total // (2 * looks) for place in range(looks)})
    chosen: dict[int, tuple[int, str]] = {}
    for page in _pages(file, ",".join(map(str, places)), 36):
        share = (page.number - 1) * count // total
        layer = page.text
        words = "" if layer is None or layer.problem else " ".join(x.text for x in layer.lines)
        if share not in chosen and low <= len(words.split()) <= high:
            chosen[share] = (page.number, words)
    return list(chosen.values())


def _pages(file: Path, numbers: str, dpi: float) -> Iterator[Page]:
    for page in read_pages(file, numbers, Resolution(dpi)):
        if not isinstance(page, Page):
            raise page.error
        yield page


def code_pages(count: int) -> Iterator[Reading]:
    """Yields functions of the standard library behind those after which constants were set.

    Raises:
        SoonerError: rapidocr is not installed.
    """
    engine = ocr_engine("bench pages")
    for number, renaming in enumerate(renamings(TUNED_ON + count)[TUNED_ON:], start=1):
        readings = [read_code(renaming.code, size, engine) for size in (ROUGH_FONT, DRAFT_FONT)]
        rough, drafted = ([line for line, _ in reading] for reading in readings)
        regions = []
        for start in range(0, len(drafted), LINES):
            part = slice(start, start + LINES)
            confidence = min(sure for _, sure in readings[1][part])
            text = "\n".join(drafted[part]) + "\n" * (start + LINES < len(drafted))
            regions.append(RegionReading("\n".join(rough[part]), text, confidence))
        yield Reading(
            renaming.module, number, renaming.ask, "\n".join(rough), renaming.answer,
            tuple(regions),
        )  # fmt: skip


def read_code(code: str, size: int, engine: Any) -> list[tuple[str, float]]:
    """Draw code and read it with RapidOCR; returns each line and how sure OCR is of it.

    Boxes say how far a line is indented, as the letters are all of one width.
    """
    import numpy as np
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans Mono"), size)
    width, height = font.getlength("M"), round(1.35 * size)
    lines = code.split("\n")
    shape = round(width * (max(map(len, lines)) + 4)), height * (len(lines) + 2)
    picture = Image.new("RGB", shape, "white")
    draw = ImageDraw.Draw(picture)
    for number, line in enumerate(lines, start=1):
        draw.text((2 * width, height * number), line, fill="#333333", font=font)
    output = engine(np.asarray(picture))
    pieces: list[list[tuple[float, str, float]]] = [[] for _ in lines]
    for corners, text, sure in zip(output.boxes, output.txts, output.scores, strict=True):
        middle = (corners[0][1] + corners[2][1]) / 2
        number = round(middle / height - 1.5)
        pieces[min(max(number, 0), len(lines) - 1)].append((corners[0][0], text, sure))
    return [_line(sorted(each), width) for each in pieces]


def _line(pieces: list[tuple[float, str, float]], width: float) -> tuple[str, float]:
    """Returns the text of pieces of a line at their columns, and the least confidence."""
    text = ""
    for left, piece, _ in pieces:
        column = max(round(left / width) - 2, 0)
        text += " " * max(column - len(text), 1 if text else 0) + piece
    return text, min((sure for *_, sure in pieces), default=1.0)
