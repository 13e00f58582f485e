"""Markdown: a page as its target wrote it, and pages as one document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..result import ParsedPage
from .figures import with_pictures
from .joined_pages import DocumentPage, folder_of


def page(parsed: ParsedPage) -> bytes:
    if not any(region.picture for region in parsed.regions):
        return parsed.markdown.encode()
    return with_pictures(parsed.markdown, DocumentPage.of(parsed).blocks).encode()


def document(pages: Iterable[DocumentPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Yields pages with a blank line between two of them."""
    is_first, folder = True, folder_of(info)
    for page in pages:
        text = with_pictures(page.markdown, page.blocks, folder).encode().strip()
        if text:
            yield (b"" if is_first else b"\n") + text + b"\n"
            is_first = False
