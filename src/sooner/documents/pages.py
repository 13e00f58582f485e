"""Reads the pages of documents one at a time (constant memory), and of picture files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from ..errors import SoonerError
from .inputs import HEIF, PICTURES, PageRange
from .page import BrokenPage, Page, Resolution, check_size, is_too_large
from .pdf import PdfFile, needed

MIN_DPI, MAX_DPI = 36.0, 2400.0
"""Plausible resolutions (dpi); values outside are defaults of the writing program, and ignored."""


class PictureFile:
    """Reads a picture, or the pages of a TIFF.

    Attributes:
        count: of its pages.
        is_cut_off: its end is missing, and pages with it.

    Raises:
        SoonerError: what reads photos of phones is not installed.
        Exception: it is damaged; each decoder has its own.
    """

    is_cut_off = False

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 1
        self._image: Image.Image
        if path.suffix.lower() in HEIF:
            package = needed("pillow_heif", "a photo in HEIC", "heic")
            self._image = package.open_heif(path).to_pillow()
        else:
            self._image = Image.open(path)
        if self._image.format == "TIFF":  # other formats' frames are a film and not pages
            try:
                self.count = int(getattr(self._image, "n_frames", 1))
            except Exception:  # each decoder has its own
                self.count, self.is_cut_off = max(self._image.tell(), 1), True

    def close(self) -> None:
        self._image.close()

    def page(self, number: int, resolution: Resolution) -> Page:
        """Returns a page, turned as its orientation says.

        Raises:
            SoonerError: it is too small or too large.
            Exception: it is damaged; each decoder has its own.
        """
        image = self._image
        image.seek(number - 1)
        is_turned = image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
        is_turned &= image.format != "TIFF"  # Pillow turns these itself
        native = image.size[::-1] if is_turned else image.size
        scale = resolution.of_picture(*native, _dpi(image))
        check_size(*native, scale, 1.0)
        width, height = (max(round(side * scale), 1) for side in native)
        if is_too_large(*native):  # a JPEG is decoded no larger than need be
            image.draft("RGB", (height, width) if is_turned else (width, height))
        ImageOps.exif_transpose(image, in_place=True)
        picture = as_rgb(image).resize((width, height), Image.Resampling.LANCZOS)
        note = f"made smaller, {width} x {height} px, as it is very large"
        notes = (note,) if is_too_large(*native) else ()
        return Page(self.path, number, np.array(picture), native, self.count, None, notes)


def _dpi(image: Image.Image) -> float:
    """Returns the coarser of both resolutions, 0 if the file does not say a sensible one."""
    try:
        dpi = min(float(value) for value in image.info.get("dpi", (0, 0)))
    except (TypeError, ValueError, ZeroDivisionError):
        return 0.0
    return dpi if MIN_DPI <= dpi <= MAX_DPI else 0.0


def as_rgb(image: Image.Image) -> Image.Image:
    """As RGB, on white where it is transparent, 16 bits brought down to 8."""
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        high = 65535.0 if image.mode.startswith("I") and values.max(initial=0) > 255 else 255.0
        grey = np.clip(values / high * 255.0, 0, 255).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        white = Image.new("RGBA", coloured.size, "white")
        return Image.alpha_composite(white, coloured).convert("RGB")
    return image.convert("RGB")


def read_pages(
    path: str | Path,
    pages: PageRange | str | None = None,
    resolution: Resolution | None = None,
    password: str | None = None,
) -> Iterator[Page | BrokenPage]:
    """Pages of a document, read when they are asked for.

    Nothing of a page is kept once the next one is taken, so a document of any length needs the
    memory of one page. What can't be read comes as a `BrokenPage`, and the others follow.

    Args:
        path: a PDF, or a picture; a TIFF may hold several pages.
        pages: which, such as `"1-4,7"`; all of them if not given.
        resolution: how large; 200 dpi if not given.
        password: of a PDF.

    Raises:
        SoonerError: at once, a page range that is not understood, or `pypdfium2` is missing.
    """
    path = Path(path)
    page_range = PageRange.parse(pages) if isinstance(pages, str) else pages or PageRange()
    if not _is_picture(path):
        needed("pdfplumber", "reading PDFs")
        needed("pypdfium2", "reading PDFs")
    return _pages(path, page_range, resolution or Resolution(), password)


def count_pages(path: Path, password: str | None = None) -> int:
    """Returns pages of a document; 0 for a PDF that can't be opened, 1 for such a picture."""
    try:
        with closing(_open(path, password)) as file:
            return file.count
    except Exception:
        return int(_is_picture(path))


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURES


def _open(path: Path, password: str | None) -> PdfFile | PictureFile:
    return PictureFile(path) if _is_picture(path) else PdfFile(path, password)


def _pages(
    path: Path, page_range: PageRange, resolution: Resolution, password: str | None
) -> Iterator[Page | BrokenPage]:
    try:
        file = _open(path, password)
    except Exception as error:
        yield BrokenPage(path, 0, _reason(error))
        return
    problem = ""
    if file.is_cut_off:
        problem = f"is truncated; {file.count} pages were found, some may be lost"
    with closing(file):
        for number in page_range.select(file.count):
            page: Page | BrokenPage
            try:
                page = file.page(number, resolution)
                if problem and number == file.count:
                    page = replace(page, notes=(*page.notes, f"the file {problem}"))
            except Exception as error:  # whatever a damaged page makes of those who read it
                page = BrokenPage(path, number, _reason(error))
            yield page
        if missing := page_range.missing(file.count):
            yield BrokenPage(path, 0, f"has {file.count} pages, not page {missing}")
        elif problem:
            yield BrokenPage(path, 0, problem)


def _reason(error: Exception) -> str:
    """Returns what is wrong with a file or a page, in a line."""
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, IsADirectoryError | PermissionError):
        return "can't be opened; check that it is a file that may be read"
    if isinstance(error, SoonerError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "is no picture, or damaged at its start"
    if isinstance(error, Image.DecompressionBombError):
        return "is too large a picture to be read safely"
    text = " ".join(str(error).split())[:80] or type(error).__name__
    is_cut = "truncat" in text.lower() or isinstance(error, EOFError)
    return f"is {'truncated' if is_cut else 'damaged'} ({text})"
