"""Documents as pages, one after the other, in flat memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .inputs import PICTURES
from .page import BrokenPage, Page
from .pdf import count_pdf_pages, read_pdf
from .pictures import count_frames, read_picture
from .ranges import PageRange
from .resolution import Resolution


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
    wanted = PageRange.parse(pages) if isinstance(pages, str) else pages or PageRange()
    size = resolution or Resolution()
    if path.suffix.lower() in PICTURES:
        return read_picture(path, wanted, size)
    return read_pdf(path, wanted, size, password)


def count_pages(
    path: str | Path, pages: PageRange | None = None, password: str | None = None
) -> int:
    """How many pages `read_pages` will give; 1 for a document that can't be read at all."""
    path = Path(path)
    if path.suffix.lower() in PICTURES:
        count = count_frames(path)
    else:
        count = count_pdf_pages(path, password)
    wanted = pages or PageRange()
    return max(len(wanted.select(count)) + bool(wanted.missing(count)), 1)
