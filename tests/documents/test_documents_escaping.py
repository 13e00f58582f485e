"""Text of a page that looks like Markdown is read as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.documents import Page, PageDraft, Region, Resolution, read_pages
from sooner.documents.serialise import escaped
from sooner.tasks.parse.formats import render_document, render_page
from sooner.tasks.parse.unverified import DraftParser

MARKS = [
    "# of items sold", "> 5 mm", "* Corresponding author", "- he said", "+ 5 V", "---", "===",
    "***", "| x |", "~~~", "<div>", "</p> ends it", "<!-- hidden", "#", "-",
]  # fmt: skip

PLAIN = [
    "#hashtag", "1. The first", "1986. A good year", "-5 degrees", "*emphasis*", "a # b", "x < y",
    "<sup>1</sup> See there", "<sub>2</sub>", "a - b", "", "--fresh", "+49 30 1234",
    "**bold** word",
    "```\n# a comment\n- in code\n```",
]  # fmt: skip


@pytest.mark.parametrize("text", MARKS)
def test_a_mark_at_a_lines_beginning_is_escaped(text: str) -> None:
    assert escaped(text) == f"\\{text}"
    assert escaped(f"first\n{text}\nlast") == f"first\n\\{text}\nlast"


@pytest.mark.parametrize("text", PLAIN)
def test_nothing_is_escaped_needlessly(text: str) -> None:
    assert escaped(text) == text


def test_a_draft_is_escaped_in_markdown_alone(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (60, 80), "white").save(tmp_path / "a.png")
    (page,) = read_pages(tmp_path / "a.png", resolution=Resolution())
    assert isinstance(page, Page)
    regions = [
        Region(None, "Section-header", 0, ["Sales"], 2),
        Region(None, "Text", 1, ["# of items\nsold - all of them"]),
        Region(None, "List-item", 2, ["- apples\n- pears"]),
        Region(None, "Page-footer", 3, ["* provisional"]),
    ]
    parsed = DraftParser()(page, PageDraft(regions, drafter="ocr", size=page.size))
    text = "## Sales\n\n\\# of items sold - all of them\n\n- apples\n- pears\n\n\\* provisional\n"
    assert parsed.markdown == text == render_page("md", parsed).decode()
    assert parsed.regions[1].text == "# of items sold - all of them"
    info = {"source": "a.png", "status": "DRAFT", "input_hash": "ab", "failed": []}
    html = b"".join(render_document("html", [parsed], info)).decode()
    assert "<p># of items sold - all of them</p>" in html
    whole = b"".join(render_document("md", [parsed], info, furniture=False)).decode()
    assert whole == "## Sales\n\n\\# of items sold - all of them\n\n- apples\n- pears\n"
