"""Files of pages and documents, from pages as they were parsed.

A format is a module with functions that write a page and a document; `FORMATS` lists them. A
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
from . import docling, html, json, markdown, olmocr, parquet


@dataclass(frozen=True)
class FileFormat:
    """A kind of file.

    Attributes:
        suffix: of its files, without the first dot.
        page: writes a page's own file; `None` for formats that have files of documents alone.
        document: writes a document's file, from its pages in order (consumed one by one) and what
            is told of the document as a whole (`delivery.document_told`).
        needs, extra: a package that it needs, and the extra of `sooner` that brings it.
    """

    suffix: str
    page: Callable[[ParsedPage], bytes] | None
    document: Callable[..., Iterator[bytes]]
    needs: str = ""
    extra: str = ""


FORMATS = {
    "md": FileFormat("md", markdown.page, markdown.document),
    "json": FileFormat("json", json.page, json.document),
    "html": FileFormat("html", html.page, html.document),
    "docling": FileFormat("docling.json", None, docling.document, "docling_core", "docling"),
    "olmocr": FileFormat("olmocr.jsonl", None, olmocr.document),
    "parquet": FileFormat("parquet", None, parquet.document, "pyarrow", "parquet"),
}

WITH_FURNITURE = ("md", "html", "olmocr")

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
        needs, extra = FORMATS[name].needs, FORMATS[name].extra
        if needs and importlib.util.find_spec(needs) is None:
            raise SoonerError(
                f"format '{name}' needs {needs}, which is not installed; pip install "
                f"'sooner[{extra}]'"
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
    if format_ in WITH_FURNITURE and not furniture:
        return FORMATS[format_].document(pages, info, False)
    return FORMATS[format_].document(pages, info)
