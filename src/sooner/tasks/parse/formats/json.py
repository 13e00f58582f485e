"""JSON: regions with boxes and raw text of each page, the same whoever parsed it, however fast."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ....documents.regions import PAGE_FOOTER, PAGE_HEADER
from ..result import ParsedPage


def page(parsed: ParsedPage) -> bytes:
    """Returns a page, its headers and footers told apart, too."""
    data = parsed.contents()
    for region in data["regions"]:
        if not region["picture"]:
            del region["picture"]
    for name, label in (("headers", PAGE_HEADER), ("footers", PAGE_FOOTER)):
        data[name] = [region.text for region in parsed.regions if region.label == label]
    return (json.dumps(data, ensure_ascii=False, indent=1) + "\n").encode()


def document(pages: Iterable[ParsedPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Yields what is told of the document, and its pages below `pages`."""
    yield json.dumps(info, ensure_ascii=False)[:-1].encode() + b', "pages": ['
    for number, parsed in enumerate(pages):
        yield (b",\n" if number else b"\n") + page(parsed).strip()
    yield b"\n]}\n"
