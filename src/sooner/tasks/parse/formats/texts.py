"""Markdown, HTML and JSON of pages and of documents.

Markdown is a page as its target wrote it. In HTML, what a model wrote is displayed, never executed.
JSON has regions with boxes and the raw text, the same whoever parsed the page, however fast.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ....documents import Region, page_html
from ....documents.regions import PAGE_FOOTER, PAGE_HEADER, PICTURE
from ..result import FIGURES, ParsedPage
from .figures import figure_address, with_pictures
from .joined_pages import DocumentPage, folder_of

HEAD = (
    "<!doctype html>\n"
    # A model's output is displayed, never executed: no scripts, and nothing from elsewhere.
    '<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src 'self' file:\">\n"
    "<style>body{max-width:50em;margin:2em auto;font-family:serif}"
    "img{max-width:100%}"
    "table{border-collapse:collapse}td,th{border:1px solid #999;padding:.2em .5em}</style>\n"
)


def markdown_page(parsed: ParsedPage) -> bytes:
    if not any(region.picture for region in parsed.regions):
        return parsed.markdown.encode()
    return with_pictures(parsed.markdown, DocumentPage.of(parsed).blocks).encode()


def markdown_document(pages: Iterable[DocumentPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Yields pages with a blank line between two of them."""
    is_first, folder = True, folder_of(info)
    for page in pages:
        text = with_pictures(page.markdown, page.blocks, folder).encode().strip()
        if text:
            yield (b"" if is_first else b"\n") + text + b"\n"
            is_first = False


def html_page(parsed: ParsedPage) -> bytes:
    return f"{HEAD}{_section(DocumentPage.of(parsed), '')}".encode()


def html_document(pages: Iterable[DocumentPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Yields sections of pages below one head."""
    yield f"{HEAD}<title>{html.escape(info['source'])}</title>\n".encode()
    for page in pages:
        yield _section(page, folder_of(info)).encode()


def _section(page: DocumentPage, folder: str) -> str:
    """Returns a page without a head.

    Args:
        folder: of its figures, as seen from the file.
    """
    inner = "".join(_elements(page, folder))
    return f'<section id="page-{page.parsed.number}">\n{inner.rstrip()}\n</section>\n'


def _elements(page: DocumentPage, folder: str) -> Iterator[str]:
    if not page.parsed.regions and page.markdown:
        yield page_html([Region(None, drafts=[page.markdown])])
    for block in page.blocks:
        if block.label == PICTURE and block.picture:
            address = html.escape(figure_address(folder, block))
            yield f'<figure><img src="{address}" alt="Figure"></figure>\n'
        if block.text:
            yield page_html([Region(None, block.label, 0, [block.text], block.level)])


def json_page(parsed: ParsedPage) -> bytes:
    """Returns a page without figures of how it was parsed, the same whoever did that, however
    fast; its headers and footers stand apart, too.
    """
    data = {name: value for name, value in asdict(parsed).items() if name not in FIGURES}
    for region in data["regions"]:
        del region["acceptance"]
        if not region["picture"]:
            del region["picture"]
    for name, label in (("headers", PAGE_HEADER), ("footers", PAGE_FOOTER)):
        data[name] = [region.text for region in parsed.regions if region.label == label]
    return (json.dumps(data, ensure_ascii=False, indent=1) + "\n").encode()


def json_document(pages: Iterable[ParsedPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Yields what is told of the document, and its pages below `pages`."""
    yield json.dumps(info, ensure_ascii=False)[:-1].encode() + b', "pages": ['
    for number, parsed in enumerate(pages):
        yield (b",\n" if number else b"\n") + json_page(parsed).strip()
    yield b"\n]}\n"
