"""Files of pages and documents, from pages as they were parsed: `FORMATS` lists the formats.

A document's file is derived from its pages, so that writing it twice gives the same bytes. Markdown
is a page as its target wrote it. JSON has regions with boxes and the raw text, the same whoever
parsed the page, however fast. docling-core writes the rest.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import PurePosixPath
from pkgutil import resolve_name
from typing import Any

from ....checks import check_choice
from ....documents.regions import Label
from ....errors import SoonerError
from ....io import to_line
from ..result import FIGURES, ParsedPage
from .joined_pages import DocumentPage, joined_pages


def markdown_page(parsed: ParsedPage) -> bytes:
    if not any(region.picture for region in parsed.regions):
        return parsed.markdown.encode()
    return f"{DocumentPage.of(parsed).markdown().strip()}\n".encode()


def markdown_document(pages: Iterable[DocumentPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Yields pages with a blank line between two of them."""
    is_first, folder = True, PurePosixPath(info["source"]).name  # the one of its pages
    for page in pages:
        text = page.markdown(folder).encode().strip()
        if text:
            yield (b"" if is_first else b"\n") + text + b"\n"
            is_first = False


def json_page(parsed: ParsedPage) -> bytes:
    """Returns a page without figures of how it was parsed, and its headers and footers apart."""
    data = {name: value for name, value in asdict(parsed).items() if name not in FIGURES}
    for region in data["regions"]:
        del region["acceptance"]
        if not region["picture"]:
            del region["picture"]
    for name, label in (("headers", Label.PAGE_HEADER), ("footers", Label.PAGE_FOOTER)):
        data[name] = [region.text for region in parsed.regions if region.label == label]
    text = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
    return text.encode(errors="backslashreplace")  # lone surrogates become escapes of JSON


def json_document(pages: Iterable[ParsedPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Yields what is told of the document, and its pages below `pages`."""
    yield to_line(info)[:-2] + b', "pages": ['
    for number, parsed in enumerate(pages):
        yield (b",\n" if number else b"\n") + json_page(parsed).strip()
    yield b"\n]}\n"


@dataclass(frozen=True)
class FileFormat:
    """Holds a kind of file.

    Attributes:
        suffix: of its files, without the first dot.
        document: yields a document's file, from its pages in order (consumed one by one) and the
            facts of the document as a whole (`delivery.document_info`).
        page: writes a page's own file; `None` for formats that have files of documents alone.
        needs: a package that it needs, which the extra `docling` brings.
    """

    suffix: str
    document: Callable[..., Iterator[bytes]]
    page: Callable[[ParsedPage], bytes] | None = None
    needs: str = ""


def _by_docling(name: str, pages: Iterable[DocumentPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Returns what a function of `docling` yields, which needs a package that may be missing."""
    yield from resolve_name(f"{__name__}.docling:{name}")(pages, info)


JSON = "json"
"""The format of pages as they were parsed; in others what goes on over pages is joined."""

FORMATS = {
    "md": FileFormat("md", markdown_document, markdown_page),
    JSON: FileFormat("json", json_document, json_page),
    "html": FileFormat("html", partial(_by_docling, "html_document"), needs="docling_core"),
    "docling": FileFormat("docling.json", partial(_by_docling, "document"), needs="docling_core"),
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
                "'sooner[docling]'"
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
        info: of the whole document: `source`, `status`, `input_hash`, `settings_hash`, `failed`.
        furniture: keep page headers and footers in formats of `WITH_FURNITURE`.
    """
    write = FORMATS[format_].document
    if format_ == JSON:
        return write(pages, info)
    joined = joined_pages(pages)
    if format_ in WITH_FURNITURE and not furniture:
        joined = (page.without_furniture() for page in joined)
    return write(joined, info)
