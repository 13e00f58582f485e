"""Text that nobody sees on a page is no part of its draft, and a note says that there was some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from reportlab.pdfgen.canvas import Canvas

from documents import paper
from documents.pages import drafted
from sooner.documents import Page, read_pages

SEEN = "Everybody can read this line."


def white(canvas: Canvas) -> None:
    canvas.setFillGray(1)
    canvas.drawString(72, 600, "secret")


def tiny(canvas: Canvas) -> None:
    canvas.setFont("Helvetica", 0.5)
    canvas.drawString(72, 600, "secret")


def covered(canvas: Canvas) -> None:
    canvas.drawString(72, 600, "secret")
    canvas.setFillGray(0.8)
    canvas.rect(60, 590, 200, 30, fill=1, stroke=0)


def invisible(canvas: Canvas) -> None:
    text = canvas.beginText(72, 600)
    text.setTextRenderMode(3)
    text.textOut("secret")
    canvas.drawText(text)


def off_the_page(canvas: Canvas) -> None:
    canvas.drawString(72, 900, "secret")


def outside_the_crop_box(canvas: Canvas) -> None:
    canvas.setCropBox((0, 650, 595, 842))
    canvas.drawString(72, 600, "secret")


@pytest.mark.parametrize(
    "hide", [white, tiny, covered, invisible, off_the_page, outside_the_crop_box]
)
def test_what_nobody_sees_is_left_out(tmp_path: Path, hide: Callable[[Canvas], None]) -> None:
    canvas = Canvas(str(tmp_path / "page.pdf"))
    canvas.setFont("Helvetica", 11)
    canvas.drawString(72, 700, SEEN)
    hide(canvas)
    canvas.save()
    draft = drafted(tmp_path / "page.pdf")
    assert draft.texts == [SEEN]
    assert draft.reason == "1 hidden word was left out"


def test_white_text_on_a_dark_panel_is_seen(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "page.pdf"))
    canvas.drawString(72, 700, SEEN)
    canvas.setFillGray(0)
    canvas.rect(60, 590, 200, 30, fill=1)
    canvas.setFillGray(1)
    canvas.drawString(72, 600, "light on dark")
    canvas.save()
    draft = drafted(tmp_path / "page.pdf")
    assert draft.texts == [SEEN, "light on dark"]
    assert draft.reason == ""


def test_words_count_where_their_font_cannot_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canvas = Canvas(str(tmp_path / "page.pdf"))
    canvas.drawString(72, 700, SEEN)
    canvas.save()
    monkeypatch.setattr("sooner.documents.pdf_text.MIN_CONTRAST", 1000)  # more than ink has
    draft = drafted(tmp_path / "page.pdf")
    assert (draft.texts, draft.reason) == ([SEEN], "")


def test_a_layer_twice_is_read_once(tmp_path: Path) -> None:
    """Fat print drawn twice, and an invisible layer upon text."""
    canvas = Canvas(str(tmp_path / "page.pdf"))
    for shift in (0, 0.3):
        canvas.drawString(72 + shift, 700, SEEN)
    text = canvas.beginText(72, 700)
    text.setTextRenderMode(3)
    text.textOut(SEEN)
    canvas.drawText(text)
    canvas.save()
    assert drafted(tmp_path / "page.pdf").texts == [SEEN]


def test_the_invisible_layer_of_a_scan_is_its_text(tmp_path: Path) -> None:
    class Layered(Canvas):
        def save(self) -> None:
            for row, line in enumerate(paper.PROSE):
                text = self.beginText(72, 665 - 14 * row)
                text.setFont("Helvetica", 11)
                text.setTextRenderMode(3)
                text.textOut(line)
                self.drawText(text)
            super().save()

    source = tmp_path / "source.pdf"
    canvas = Canvas(str(source), pagesize=(paper.WIDTH, paper.HEIGHT))
    paper.lines(canvas, 72, 665, paper.PROSE)
    canvas.save()
    paper.scan(tmp_path / "scan.pdf", source, canvas_class=Layered)
    (page,) = read_pages(tmp_path / "scan.pdf")
    assert isinstance(page, Page)
    assert page.text is not None
    assert not page.text.problem
    assert [line.text for line in page.text.lines] == paper.PROSE
