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
from .page import POINTS, Page, PageText, Picture, Resolution, check_size
from .pdf_text import page_text

PASSWORD = 4
"""PDFium's error code for a wrong password, or for none where there should be one."""

FINEST = 300.0 / 72.0
"""Pixels a point at which a page is judged to be too small: drawn larger, a dot is still a dot."""

TAIL, PADDING, MAX_PADDING = 2048, b"\0 \t\r\n", 1 << 20
"""Bytes in which a PDF's end is looked for, those that may stand behind them, and how many."""


_LOCK = threading.RLock()
"""PDFium may be used by one thread at a time in the whole process, hence one lock for all files."""


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
        is_cut_off: its end is missing, and maybe pages with it.

    Raises:
        SoonerError: it can't be opened.
        OSError: there is no such file, or it may not be read.
    """

    def __init__(self, path: Path, password: str | None) -> None:
        import pypdfium2

        self.path, self.password = path, password
        self._texts: Any = None
        try:
            with _LOCK:
                self._document = pypdfium2.PdfDocument(path, password=password)
                init_forms(pypdfium2, self._document)
                self.count = len(self._document)
        except Exception as error:  # PDFium's, and what a name that is no Unicode makes
            is_locked = getattr(error, "err_code", None) == PASSWORD
            raise SoonerError(_reason(path, is_locked, password)) from None
        self.is_cut_off = _is_cut_off(path)

    def close(self) -> None:
        if self._texts is not None:
            self._texts.close()
        with _LOCK:
            self._document.close()

    def page(self, number: int, resolution: Resolution) -> Page:
        """Returns a page with its text layer, upright as its rotation says.

        Raises:
            SoonerError: it is too small or too large.
            Exception: it is damaged.
        """
        with _LOCK, closing(self._document[number - 1]) as page:
            picture, scale = draw_page(page, resolution)
            (width, height), notes = page.get_size(), list[str]()
            try:
                text = self._text(number, picture)
            except Exception as error:  # the picture is still good for OCR and for a model
                text = None
                notes.append(f"its text layer can't be read ({error_line(error)[:80]})")
        if scale < resolution.scale(width, height, POINTS):
            notes.append(f"drawn at {scale * POINTS:.0f} dpi, as it is very large")
        return Page(self.path, number, picture, (width, height), self.count, text, tuple(notes))

    def _text(self, number: int, picture: Picture) -> PageText:
        """Returns the text of a page on its picture; see `page_text`."""
        import pdfplumber

        with quiet("pdfminer"):
            if self._texts is None:
                self._texts = pdfplumber.open(self.path, password=self.password)
            if len(self._texts.pages) != self.count:  # a damaged file: which is which is unknown
                raise SoonerError(f"{len(self._texts.pages)} of {self.count} pages found")
            with closing(self._texts.pages[number - 1]) as page:
                return page_text(page, picture)


def _reason(path: Path, is_locked: bool, password: str | None) -> str:
    """Returns why a PDF can't be opened."""
    if is_locked and password:
        return "is encrypted, and the password is wrong"
    if is_locked:
        return "is encrypted; give its password (--password)"
    with open(path, "rb") as file:
        head = file.read(1024)
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


def draw_page(page: Any, resolution: Resolution) -> tuple[Picture, float]:
    """Returns the picture of an open page, and its pixels a point.

    Raises:
        SoonerError: it is too small or too large.
    """
    width, height = page.get_size()  # as it is shown, so after rotation
    scale = resolution.of_pdf(width, height)
    check_size(width, height, scale, FINEST)
    bitmap = page.render(scale=scale, rev_byteorder=True)
    picture = np.array(bitmap.to_numpy())  # own memory: the bitmap's ends with it
    bitmap.close()
    return picture, scale
