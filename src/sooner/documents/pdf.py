"""Pages of PDF files, drawn by PDFium."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import SoonerError, error_line
from .inputs import PageRange
from .page import BrokenPage, Page, Picture
from .pdf_text import page_text, text_turn
from .resolution import FINEST, POINTS, Resolution, size_problem

PASSWORD = 4
"""PDFium's error code for a wrong password, or for none where there should be one."""

NO_PAGES = re.compile(rb"/Kids\s*\[\s*\]")
"""An empty list of pages, which PDFium takes for damage."""

TAIL, PADDING, MAX_PADDING = 2048, b"\0 \t\r\n", 1 << 20
"""Bytes in which a PDF's end is looked for, those that may stand behind them, and how many."""


_LOCK = threading.RLock()
"""PDFium may be used by one thread at a time in the whole process, hence one lock for all files."""


def read_pdf(
    path: Path, page_range: PageRange, resolution: Resolution, password: str | None = None
) -> Iterator[Page | BrokenPage]:
    """Yields pages of a PDF with their text layers, upright as their rotation says.

    Raises:
        SoonerError: at once, if `pypdfium2` is missing.
    """
    return _pages(_pdfium(), path, page_range, resolution, password)


def count_pdf_pages(path: Path, password: str | None = None) -> int:
    """Returns pages of a PDF; 0 if it can't be opened.

    Raises:
        SoonerError: `pypdfium2` is missing.
    """
    document = _open(_pdfium(), path, password)
    if isinstance(document, BrokenPage):
        return 0
    with _LOCK:
        count = len(document)
        document.close()
    return count


def _pdfium() -> ModuleType:
    try:
        import pypdfium2
    except ImportError:
        raise SoonerError(
            "PDFs need pypdfium2; install it with: pip install 'sooner[ocr]'"
        ) from None
    return pypdfium2


def _pages(
    pdfium: ModuleType,
    path: Path,
    page_range: PageRange,
    resolution: Resolution,
    password: str | None,
) -> Iterator[Page | BrokenPage]:
    document = _open(pdfium, path, password)
    if isinstance(document, BrokenPage):
        yield document
        return
    try:
        with _LOCK:
            count = len(document)
        if not count:
            yield BrokenPage(path, 0, "has no pages")
            return
        for number in page_range.select(count):
            yield _page(pdfium, document, path, number, count, resolution)
        if missing := page_range.missing(count):
            yield BrokenPage(path, 0, f"has {count} pages, not page {missing}")
        elif _is_cut_off(path):
            yield BrokenPage(path, 0, f"is truncated; {count} pages were found, some may be lost")
    finally:
        with _LOCK:
            document.close()


def _open(pdfium: ModuleType, path: Path, password: str | None) -> Any | BrokenPage:
    try:
        with _LOCK:
            document = pdfium.PdfDocument(path, password=password)
            init_forms(pdfium, document)
            return document
    except FileNotFoundError:
        return BrokenPage(path, 0, "does not exist")
    except Exception as error:  # PDFium's, and what a name that is no Unicode makes
        return BrokenPage(path, 0, _reason(path, getattr(error, "err_code", None), password))


def init_forms(pdfium: ModuleType, document: Any) -> None:
    """Have the values of form fields drawn, if there are any; XFA's are those of its AcroForm."""
    logger = logging.getLogger(pdfium.__name__)
    level = logger.level
    logger.setLevel(logging.ERROR)  # or XFA would be a warning to build PDFium with more in it
    try:
        document.init_forms()
    except pdfium.PdfiumError:  # the page's own text is still there
        pass
    finally:
        logger.setLevel(level)


def _reason(path: Path, code: int | None, password: str | None) -> str:
    if code == PASSWORD:
        if password:
            return "is encrypted, and the password is wrong"
        return "is encrypted; give its password (--password)"
    try:
        with open(path, "rb") as file:
            head = file.read(1024)
    except OSError:
        return "can't be opened; check that it is a file that may be read"
    if not head:
        return "is empty"
    if b"%PDF" not in head:
        return "is no PDF"
    if _is_cut_off(path):
        return "is truncated"
    return "has no pages" if NO_PAGES.search(path.read_bytes()) else "is damaged"


def _is_cut_off(path: Path) -> bool:
    """Returns whether the end of a PDF is missing, as after a broken download; zeros and blanks
    behind it, with which some disks and mail programs fill files up, do not count.
    """
    with open(path, "rb") as file:
        file.seek(max(file.seek(0, 2) - MAX_PADDING, 0))
        return b"%%EOF" not in file.read().rstrip(PADDING)[-TAIL:]


def _page(
    pdfium: ModuleType,
    document: Any,
    path: Path,
    number: int,
    count: int,
    resolution: Resolution,
) -> Page | BrokenPage:
    try:
        with _LOCK:
            page = document[number - 1]
            try:
                return _drawn(pdfium, page, path, number, count, resolution)
            finally:
                page.close()
    except Exception as error:  # whatever a damaged page makes of those who read it
        return BrokenPage(path, number, f"is damaged ({str(error)[:80] or type(error).__name__})")


def _drawn(
    pdfium: ModuleType,
    page: Any,
    path: Path,
    number: int,
    count: int,
    resolution: Resolution,
    notes: tuple[str, ...] = (),
) -> Page | BrokenPage:
    drawn = draw_page(page, resolution)
    if isinstance(drawn, str):
        return BrokenPage(path, number, drawn)
    picture, scale = drawn
    try:
        text = page_text(pdfium, page, picture)
    except Exception as error:  # the picture is still good for OCR and for a model
        text = None
        notes = (*notes, f"its text layer can't be read ({error_line(error)[:80]})")
    if not notes and text is not None and (turn := text_turn(text)):
        page.set_rotation((page.get_rotation() + turn) % 360)
        done = (f"turned by {turn} degrees, as its text runs",)
        return _drawn(pdfium, page, path, number, count, resolution, done)
    if scale < resolution.of_pdf(*page.get_size()):
        notes = (*notes, f"drawn at {scale * POINTS:.0f} dpi, as it is very large")
    return Page(path, number, picture, scale * POINTS, page.get_size(), count, text, notes)


def draw_page(page: Any, resolution: Resolution) -> tuple[Picture, float] | str:
    """Returns the picture of an open page, and its pixels a point; or why its size is not drawn."""
    native = page.get_size()  # as it is shown, so after rotation
    scale = resolution.that_fits(*native)
    way_out = "; lower the dpi, or give the longest side"
    for pixels in (scale, min(scale, FINEST)):
        if problem := size_problem(native[0] * pixels, native[1] * pixels, way_out):
            return problem
    bitmap = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False)
    picture = np.array(bitmap.to_numpy())  # own memory: the bitmap's ends with it
    bitmap.close()
    if picture.ndim == 2 or picture.shape[2] == 1:
        picture = np.repeat(picture.reshape(*picture.shape[:2], 1), 3, axis=2)
    return np.ascontiguousarray(picture[:, :, :3]), scale
