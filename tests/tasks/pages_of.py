"""Parsed pages for tests of formats, written out region by region."""

from __future__ import annotations

from typing import Any

from sooner.documents import MARKDOWN, Region, to_markdown
from sooner.documents.serialise import texts_of
from sooner.tasks.parse.result import ParsedPage, ParsedRegion

WIDTH, HEIGHT = 600, 800

TOP, MIDDLE, BOTTOM = (50.0, 90.0, 550.0, 200.0), (50.0, 300.0, 550.0, 400.0), (50, 600, 550, 730)

INFO = {
    "source": "sub/a paper.pdf",
    "status": "SUCCESS",
    "input_hash": "ab" * 32,
    "settings_hash": "s",
    "failed": [],
}

Part = tuple[str, str, Any]


def page(number: int, *parts: Part, **options: Any) -> ParsedPage:
    """A page of parts: a label, a text, and a box of the page's 600 x 800 pixels or `None`."""
    regions = [
        ParsedRegion(order, label, text, box and tuple(map(float, box)), level=options.pop("l", 0))
        for order, (label, text, box) in enumerate(parts)
    ]
    drafts = [Region(None, region.label, region.order, [region.text]) for region in regions]
    markdown = to_markdown(drafts, MARKDOWN)
    values = {"markdown": markdown, "raw": markdown, "size": (WIDTH, HEIGHT), **options}
    return ParsedPage("a.pdf", number, regions=regions, **values)


def written(label: str, text: str) -> str:
    return texts_of(Region(None, label, 0, [text]), MARKDOWN)[0]
