"""Footnotes are links in Markdown where the page makes them sure, and superscripts elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from reportlab.lib.pagesizes import A4
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from sooner.documents import Page, read_pages
from sooner.documents.drafters import TextLayer
from sooner.documents.footnotes import linked_marks
from sooner.tasks.parse.formats import render_document
from sooner.tasks.parse.result import ParsedPage
from sooner.tasks.parse.unverified import DraftParser
from tasks.pages_of import INFO


def put(canvas: Canvas, y: float, size: float, text: str) -> None:
    """A line in which `^` raises what stands behind it, up to the next `^`."""
    x = 72.0
    for place, part in enumerate(text.split("^")):
        is_raised = place % 2
        scale = 0.65 * size if is_raised else size
        canvas.setFont("Helvetica", scale)
        canvas.drawString(x, y + 0.35 * size * is_raised, part)
        x += stringWidth(part, "Helvetica", scale)


def parsed(path: Path, *pages: tuple[list[str], list[str]]) -> list[ParsedPage]:
    """Pages of text and of notes below it, as the text layer's drafts."""
    canvas = Canvas(str(path), pagesize=A4)
    for lines, notes in pages:
        for row, line in enumerate(lines):
            put(canvas, 760 - 14 * row, 11, line)
        for row, note in enumerate(notes):
            put(canvas, 120 - 11 * row, 8, note)
        canvas.showPage()
    canvas.save()
    good_pages = [page for page in read_pages(path) if isinstance(page, Page)]
    return [DraftParser()(page, TextLayer()(page)) for page in good_pages]


def test_a_mark_is_linked_to_the_note_that_begins_with_it(tmp_path: Path) -> None:
    pages = parsed(
        tmp_path / "a.pdf",
        (
            ["Water boils at 100 degrees^1^ and freezes at none,^2^ as", "everybody knows by now."],
            ["^1^ At the level of the sea.", "^2^ If nothing is dissolved."],
        ),
        (["Ice floats upon it.^1^ So do", "many other things."], ["^1^ It is lighter."]),
    )
    assert "degrees[^1-1] and freezes at none,[^1-2] as everybody" in pages[0].markdown
    assert "[^1-1]: At the level of the sea.\n" in pages[0].markdown
    assert "[^1-2]: If nothing is dissolved.\n" in pages[0].markdown
    assert "it.[^2-1] So" in pages[1].markdown
    assert "[^2-1]: It is lighter." in pages[1].markdown
    assert "degrees<sup>1</sup> and" in pages[0].regions[0].text
    whole = b"".join(render_document("md", pages, INFO)).decode()
    assert [whole.count(f"[^{mark}]") for mark in ("1-1", "1-2", "2-1")] == [2, 2, 2]
    page = b"".join(render_document("html", pages, INFO)).decode()
    assert "degrees<sup>1</sup> and" in page


def test_what_is_not_sure_stays_a_superscript(tmp_path: Path) -> None:
    (page,) = parsed(
        tmp_path / "a.pdf",
        (
            ["It covers 10^2^ metres, or x^3^ of them, or some more^4^", "or many,^5^ or lots.^5^"],
            ["^2^ Of course.", "^3^ Or so.", "^5^ Or both."],
        ),
    )
    assert "[^" not in page.markdown
    for text in ("10<sup>2</sup>", "x<sup>3</sup>", "more<sup>4</sup>", "lots.<sup>5</sup>"):
        assert text in page.markdown


def test_a_note_has_to_stand_after_its_mark() -> None:
    text, note = ("Text", "Some words<sup>1</sup> of it."), ("Footnote", "<sup>1</sup> A note.")
    assert linked_marks([text, note]) == {"1"}
    assert linked_marks([note, text]) == frozenset()
    assert linked_marks([text, note, note]) == frozenset()
