"""Files of pages and documents, from pages as they were parsed.

A format has a function that writes a document, and mostly one for a page; `FORMATS` lists them. A
document's file is derived from its pages, so that writing it twice gives the same bytes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ....checks import check_choice
from ....errors import SoonerError
from ..result import ParsedPage
from . import texts
from .joined_pages import DocumentPage, joined_pages


@dataclass(frozen=True)
class FileFormat:
    """Holds a kind of file.

    Attributes:
        suffix: of its files, without the first dot.
        document: yields a document's file, from its pages in order (consumed one by one) and the
            facts of the document as a whole (`delivery.document_info`).
        page: writes a page's own file; `None` for formats that have files of documents alone.
        needs: a package that it needs, which the extra of its name brings.
    """

    suffix: str
    document: Callable[..., Iterator[bytes]]
    page: Callable[[ParsedPage], bytes] | None = None
    needs: str = ""


def _docling(pages: Iterable[DocumentPage], info: dict[str, Any]) -> Iterator[bytes]:
    from . import docling  # which may be missing

    return docling.document(pages, info)


JSON = "json"
"""The format of pages as they were parsed; in others what goes on over pages is joined."""

FORMATS = {
    "md": FileFormat("md", texts.markdown_document, texts.markdown_page),
    JSON: FileFormat("json", texts.json_document, texts.json_page),
    "html": FileFormat("html", texts.html_document, texts.html_page),
    "docling": FileFormat("docling.json", _docling, needs="docling_core"),
}

WITH_FURNITURE = ("md", "html")
"""Formats in which page headers and footers stand in the text, unless they are left out."""

PAGED = tuple(name for name, format_ in FORMATS.items() if format_.page is not None)
"""Formats in which each page has a file of its own, too."""


def check_formats(text: str) -> tuple[str, ...]:
    """Returns formats from a list with commas, each once.

    Raises:
        SoonerError: an unknown one, or one whose package is not installed.
    """
    names = list(dict.fromkeys(name.strip().lower() for name in text.split(",")))
    for name in names:
        if not name:
            raise SoonerError(f"format '{text}' has an empty name; write it as md,json")
        check_choice("format", name, FORMATS)
        needs = FORMATS[name].needs
        if needs and importlib.util.find_spec(needs) is None:
            raise SoonerError(
                f"format '{name}' needs {needs}, which is not installed; pip install "
                f"'sooner[{name}]'"
            )
    return tuple(names)


def render_page(format_: str, page: ParsedPage) -> bytes:
    """Returns a page's file in one of the formats that are `PAGED`."""
    write = FORMATS[format_].page
    assert write is not None
    return write(page)


def render_document(
    format_: str, pages: Iterable[ParsedPage], info: dict[str, Any], furniture: bool = True
) -> Iterator[bytes]:
    """Yields a document's file, in parts.

    Args:
        pages: those that were parsed, in order.
        info: of the document as a whole: `source`, `status`, `input_hash`, `settings_hash`,
            `failed`.
        furniture: keep page headers and footers in formats of `WITH_FURNITURE`.
    """
    write = FORMATS[format_].document
    if format_ == JSON:
        return write(pages, info)
    joined = joined_pages(pages)
    if format_ in WITH_FURNITURE and not furniture:
        joined = (page.without_furniture() for page in joined)
    return write(joined, info)
