"""Reads the pages of documents one at a time (constant memory), and of picture files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ..errors import SoonerError
from .inputs import HEIF, PICTURES, PageRange
from .page import MIN_SIDE, BrokenPage, Page, Picture, Resolution, is_too_large, size_problem
from .pdf import needed, read_pdf

MIN_DPI, MAX_DPI = 36.0, 2400.0
"""Plausible resolutions (dpi); values outside are defaults of the writing program, and ignored."""


def read_picture(
    path: Path, page_range: PageRange, resolution: Resolution
) -> Iterator[Page | BrokenPage]:
    """Yields pages of a picture file: one, or the pages of a TIFF."""
    try:
        image = _open(path)
    except Exception as error:  # each decoder has its own
        yield BrokenPage(path, 0, _reason(error))
        return
    with image:
        count = _frames(image)
        for number in page_range.select(count):
            yield _read(path, image, number, count, resolution)
        if missing := page_range.missing(count):
            yield BrokenPage(path, 0, f"has {count} pages, not page {missing}")


def count_frames(path: Path) -> int:
    """Returns pages of a picture file; 1 if it can't be read."""
    try:
        with _open(path) as image:
            return _frames(image)
    except Exception:
        return 1


def _open(path: Path) -> Image.Image:
    """Returns a picture file.

    Raises:
        SoonerError: what reads photos of phones is not installed.
        Exception: it is damaged; each decoder has its own.
    """
    if path.suffix.lower() not in HEIF:
        return Image.open(path)
    package = needed("pillow_heif", "a photo in HEIC", "heic")
    return cast(Image.Image, package.open_heif(path).to_pillow())


def _frames(image: Image.Image) -> int:
    """Returns pages of a TIFF; other formats' frames are a film and not pages."""
    if image.format != "TIFF":
        return 1
    try:
        return int(getattr(image, "n_frames", 1))
    except Exception:  # a chain of pages that is cut off
        return 1


def _read(
    path: Path, image: Image.Image, number: int, count: int, resolution: Resolution
) -> Page | BrokenPage:
    try:
        image.seek(number - 1)
        native = _native(image)
        if min(image.size) < MIN_SIDE:
            return BrokenPage(path, number, size_problem(*image.size))
        picture = _upright(image, resolution)
    except Exception as error:  # whatever a damaged file makes of those who decode it
        return BrokenPage(path, number, _reason(error))
    height, width = picture.shape[:2]
    notes = (f"made smaller, {width} x {height} px, as it is very large",)
    return Page(path, number, picture, native, count, None, notes * is_too_large(*native))


def _native(image: Image.Image) -> tuple[float, float]:
    """Size in the file's own pixels, turned as the picture is."""
    width, height = image.size
    turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    return (float(height), float(width)) if turned else (float(width), float(height))


def _upright(image: Image.Image, resolution: Resolution) -> Picture:
    """Returns a page's picture, turned as its orientation says."""
    width, height = image.size
    factor = resolution.of_picture(width, height, _dpi(image))
    size = max(round(width * factor), 1), max(round(height * factor), 1)
    if is_too_large(*size):
        raise SoonerError(size_problem(*size, "; give a smaller size"))
    if is_too_large(*image.size):
        image.draft("RGB", size)  # a JPEG is decoded no larger than need be
    image.load()
    exif = image.getexif()
    picture = as_rgb(image)
    if size != picture.size:
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    if 0x0112 in exif:
        picture.getexif()[0x0112] = exif[0x0112]
        picture = ImageOps.exif_transpose(picture)
    return np.array(picture)


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
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        coloured = image.convert("RGBA")
        white = Image.new("RGBA", coloured.size, "white")
        return Image.alpha_composite(white, coloured).convert("RGB")
    return image.convert("RGB") if image.mode != "RGB" else image.copy()


def _reason(error: BaseException) -> str:
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
    text = " ".join(str(error).split())[:80]
    is_cut = "truncat" in text.lower() or isinstance(error, EOFError)
    return ("is truncated" if is_cut else "is damaged") + (f" ({text})" if text else "")


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
    size = resolution or Resolution()
    if path.suffix.lower() in PICTURES:
        return read_picture(path, page_range, size)
    return read_pdf(path, page_range, size, password)
