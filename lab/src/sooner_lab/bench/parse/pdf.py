"""PDFs of the world's pages: scans, with or without the text layer that OCR services write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from sooner.errors import SoonerError

from ...worlds.document import glyphs
from ...worlds.document.page import CELL
from .sheets import Sheet

DPI = 144
"""Two pixels a point, so that no page has a fraction of a pixel."""
POINT = DPI // 72
INVISIBLE = 3
ADVANCE = 0.6
"""Width of every letter of Courier, in its own size."""


def write_pdf(path: Path, sheets: Sequence[Sheet], text_layer: bool) -> Path:
    """Write a PDF of one picture a page, which PDFium gives back pixel by pixel.

    Args:
        path: the file.
        sheets: the pages.
        text_layer: lay each word over its picture, invisible, as OCR services do.

    Raises:
        SoonerError: reportlab is not installed.
    """
    try:
        from reportlab.lib.utils import ImageReader
        from reportlab.pdfgen.canvas import Canvas
    except ImportError as error:
        raise SoonerError(
            "PDFs of the part document need reportlab; pip install 'sooner-lab[bench]'"
        ) from error
    canvas = Canvas(str(path))
    for sheet in sheets:
        width, height = (side / POINT for side in sheet.page.size)
        canvas.setPageSize((width, height))
        picture = ImageReader(Image.fromarray(sheet.page.picture[:, :, 0]))
        canvas.drawImage(picture, 0, 0, width, height)
        for word in sheet.made.words if text_layer else ():
            ink = "•" if word.bullet else word.ink
            size = glyphs.SIZES[word.style] / POINT
            down = (word.row * CELL + glyphs.BASELINE) / POINT
            text = canvas.beginText(word.left / POINT, height - down)
            text.setFont("Courier", size)
            text.setTextRenderMode(INVISIBLE)
            # In letters as wide as those on the picture together.
            text.setHorizScale(100 * (word.right - word.left) / POINT / (ADVANCE * size * len(ink)))
            text.textOut(ink)
            canvas.drawText(text)
        canvas.showPage()
    canvas.save()
    return path
