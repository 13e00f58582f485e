"""Pages of PDF files, drawn by PDFium."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import SoonerError, error_line
from .inputs import PageRange
from .page import FINEST, POINTS, BrokenPage, Page, PageText, Picture, Resolution, size_problem
from .pdf_text import page_text

PASSWORD = 4
"""PDFium's error code for a wrong password, or for none where there should be one."""

TAIL, PADDING, MAX_PADDING = 2048, b"\0 \t\r\n", 1 << 20
"""Bytes in which a PDF's end is looked for, those that may stand behind them, and how many."""


_LOCK = threading.RLock()
"""PDFium may be used by one thread at a time in the whole process, hence one lock for all files."""


def read_pdf(
    path: Path, page_range: PageRange, resolution: Resolution, password: str | None = None
) -> Iterator[Page | BrokenPage]:
    """Yields pages of a PDF with their text layers, upright as their rotation says.

    Raises:
        SoonerError: at once, if `pypdfium2` or `pdfplumber` is missing.
    """
    _pdfium()
    return _pages(path, page_range, resolution, password)


def count_pdf_pages(path: Path, password: str | None = None) -> int:
    """Returns pages of a PDF; 0 if it can't be opened.

    Raises:
        SoonerError: `pypdfium2` or `pdfplumber` is missing.
    """
    file = _open(path, password)
    if isinstance(file, BrokenPage):
        return 0
    with closing(file):
        return file.count


def needed(package: str, what: str, extra: str = "ocr") -> Any:
    """Returns an optional package.

    Args:
        package: its module.
        what: needs it.
        extra: of sooner, which installs it.

    Raises:
        SoonerError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise SoonerError(
            f"{what} needs {package.replace('_', '-')} ({error}); install it with: "
            f"pip install 'sooner[{extra}]'"
        ) from None


def _pdfium() -> Any:
    needed("pdfplumber", "reading PDFs")
    return needed("pypdfium2", "reading PDFs")


def _pages(
    path: Path, page_range: PageRange, resolution: Resolution, password: str | None
) -> Iterator[Page | BrokenPage]:
    file = _open(path, password)
    if isinstance(file, BrokenPage):
        yield file
        return
    with closing(file):
        if not file.count:
            yield BrokenPage(path, 0, "has no pages")
            return
        for number in page_range.select(file.count):
            yield file.page(number, resolution)
        if missing := page_range.missing(file.count):
            yield BrokenPage(path, 0, f"has {file.count} pages, not page {missing}")
        elif _is_cut_off(path):
            reason = f"is truncated; {file.count} pages were found, some may be lost"
            yield BrokenPage(path, 0, reason)


def _open(path: Path, password: str | None) -> PdfFile | BrokenPage:
    _pdfium()
    try:
        return PdfFile(path, password)
    except FileNotFoundError:
        return BrokenPage(path, 0, "does not exist")
    except Exception as error:  # PDFium's, and what a name that is no Unicode makes
        return BrokenPage(path, 0, _reason(path, getattr(error, "err_code", None), password))


def init_forms(pdfium: ModuleType, document: Any) -> None:
    """Have the values of form fields drawn, if there are any; XFA's are those of its AcroForm."""
    with quiet(pdfium.__name__), suppress(pdfium.PdfiumError):  # the page's own text is still there
        document.init_forms()


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Hides warnings of a package, which are about what its users can't change."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class PdfFile:
    """Reads pages of a file: PDFium draws them, and pdfplumber, which opens it for the first one,
    reads their texts.

    Attributes:
        count: of its pages.
    """

    def __init__(self, path: Path, password: str | None) -> None:
        self.path, self.password, pdfium = path, password, _pdfium()
        self._texts: Any = None
        with _LOCK:
            self._document = pdfium.PdfDocument(path, password=password)
            init_forms(pdfium, self._document)
            self.count = len(self._document)

    def close(self) -> None:
        if self._texts is not None:
            self._texts.close()
        with _LOCK:
            self._document.close()

    def page(self, number: int, resolution: Resolution) -> Page | BrokenPage:
        try:
            with _LOCK, closing(self._document[number - 1]) as page:
                return self._drawn(page, number, resolution)
        except Exception as error:  # whatever a damaged page makes of those who read it
            reason = f"is damaged ({str(error)[:80] or type(error).__name__})"
            return BrokenPage(self.path, number, reason)

    def _drawn(self, page: Any, number: int, resolution: Resolution) -> Page | BrokenPage:
        drawn, native = draw_page(page, resolution), page.get_size()
        if isinstance(drawn, str):
            return BrokenPage(self.path, number, drawn)
        picture, scale = drawn
        notes = list[str]()
        try:
            text = self._text(number, picture)
        except Exception as error:  # the picture is still good for OCR and for a model
            text = None
            notes.append(f"its text layer can't be read ({error_line(error)[:80]})")
        if scale < resolution.of_pdf(*native):
            notes.append(f"drawn at {scale * POINTS:.0f} dpi, as it is very large")
        return Page(self.path, number, picture, native, self.count, text, tuple(notes))

    def _text(self, number: int, picture: Picture) -> PageText:
        """Returns the text of a page on its picture; see `page_text`."""
        import pdfplumber

        with quiet("pdfminer"):
            if self._texts is None:
                self._texts = pdfplumber.open(self.path, password=self.password)
            with closing(self._texts.pages[number - 1]) as page:
                return page_text(page, picture)


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
    return "is truncated" if _is_cut_off(path) else "is damaged"


def _is_cut_off(path: Path) -> bool:
    """Returns whether the end of a PDF is missing, as after a broken download; zeros and blanks
    behind it, with which some disks and mail programs fill files up, do not count.
    """
    with open(path, "rb") as file:
        file.seek(max(file.seek(0, 2) - MAX_PADDING, 0))
        return b"%%EOF" not in file.read().rstrip(PADDING)[-TAIL:]


def draw_page(page: Any, resolution: Resolution) -> tuple[Picture, float] | str:
    """Returns the picture of an open page, and its pixels a point; or why its size is not drawn."""
    native = page.get_size()  # as it is shown, so after rotation
    scale = resolution.that_fits(*native)
    way_out = "; lower the dpi, or give the longest side"
    for pixels in (scale, min(scale, FINEST)):
        if problem := size_problem(native[0] * pixels, native[1] * pixels, way_out):
            return problem
    bitmap = page.render(scale=scale, rev_byteorder=True)
    picture = np.array(bitmap.to_numpy())  # own memory: the bitmap's ends with it
    bitmap.close()
    return picture, scale
