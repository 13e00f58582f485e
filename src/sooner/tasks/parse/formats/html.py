"""HTML: a section a page; what a model wrote is displayed, never executed."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from typing import Any

from ....documents import Region, page_html
from ....documents.regions import PICTURE
from ..result import ParsedPage
from .figures import figure_address
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


def page(parsed: ParsedPage) -> bytes:
    return f"{HEAD}{section(DocumentPage.of(parsed), '')}".encode()


def document(pages: Iterable[DocumentPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Yields sections of pages below one head."""
    yield f"{HEAD}<title>{html.escape(info['source'])}</title>\n".encode()
    for page in pages:
        yield section(page, folder_of(info)).encode()


def section(page: DocumentPage, folder: str) -> str:
    """Returns a page without a head.

    Args:
        folder: of its figures, as seen from the file.
    """
    inner = page.parsed.raw if page.parsed.form == "html" else "".join(_elements(page, folder))
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
