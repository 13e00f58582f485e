"""A PDF's own text as a draft: words, reading order, headings, code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sooner.documents import Page, PageDraft, to_markdown
from sooner.documents.drafters import BLANK, OCR, TextLayer
from sooner.tasks.parse import FirstOf

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

from documents import layouts, paper
from documents.pages import drafted, only
from documents.reading import HAS_PDFTOTEXT, in_order, markdown, pdftotext, words


def test_words_end_at_gaps_though_no_blank_is_written(tmp_path: Path) -> None:
    text = markdown(only(layouts.manual(tmp_path / "manual.pdf")))
    expected = layouts.prose(4)[0].split()
    assert words(text)[4:][: len(expected)] == expected


def test_words_of_tight_text_do_not_run_together(tmp_path: Path) -> None:
    (text,) = drafted(layouts.tight(tmp_path / "tight.pdf")).texts
    assert text == "CHAPTER ONE OVERVIEW OF THE BREW"


def test_a_line_is_read_from_left_to_right_however_it_is_listed(tmp_path: Path) -> None:
    (text,) = drafted(layouts.italic_last(tmp_path / "italic.pdf")).texts
    assert text == "link to Launchpad bug a short form is preferred"


def test_headings_are_recognised_by_size_and_by_weight(tmp_path: Path) -> None:
    draft = drafted(layouts.manual(tmp_path / "manual.pdf"))
    headings = [
        (region.label, region.level, region.drafts[0])
        for region in draft.regions
        if region.label != "Text"
    ]
    assert headings == [
        ("Title", 0, "A Manual of Wizardry"),
        ("Section-header", 3, "Options of the cauldron"),
    ]
    lines = to_markdown(draft.regions).splitlines()
    assert "# A Manual of Wizardry" in lines
    assert "### Options of the cauldron" in lines


def test_code_keeps_its_lines_and_indents(tmp_path: Path) -> None:
    draft = drafted(layouts.manual(tmp_path / "manual.pdf"))
    text = to_markdown(draft.regions)
    assert f"\n\n{layouts.CODE}\n\n" in text
    assert text.endswith("```\nbrew --strong\n```\n")
    (region,) = [item for item in draft.regions if item.drafts[0] == layouts.CODE]
    assert region.bbox is not None  # HSD verifies it on its crop, as any other region


def test_a_page_in_a_typewriter_s_font_is_no_code(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "typed.pdf"))
    canvas.setFont("Courier", 11)
    for n, line in enumerate(layouts.prose(5, 6)):
        canvas.drawString(72, 700 - 14 * n, line)
    canvas.save()
    assert "```" not in markdown(only(tmp_path / "typed.pdf"))


def test_three_columns_are_read_in_turn(tmp_path: Path) -> None:
    path, lines = layouts.three_columns(tmp_path / "card.pdf")
    expected = " ".join(["A Card in Three Columns", *lines]).split()
    assert words(markdown(only(path))) == expected


def test_a_blank_page_is_nobody_else_s_either(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "blank.pdf"))
    canvas.showPage()
    canvas.save()

    class Never(OCR):
        def __call__(self, page: Page) -> PageDraft:
            raise AssertionError("asked about a blank page")

    draft = FirstOf(TextLayer(), Never())(only(tmp_path / "blank.pdf"))
    assert draft.regions == []
    assert draft.reason.endswith(BLANK)


@pytest.mark.skipif(not HAS_PDFTOTEXT, reason="poppler's pdftotext is not installed")
@pytest.mark.parametrize(
    "make",
    [
        layouts.manual, layouts.italic_last, paper.report,
        paper.columns, lambda path: layouts.three_columns(path)[0],
    ],
)  # fmt: skip
def test_words_are_those_of_pdftotext_in_its_order(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    page = only(make(tmp_path / "page.pdf"))
    assert in_order(words(markdown(page)), words(pdftotext(page.source, 1))) >= 0.98


def test_a_superscript_is_separated_from_its_word(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "notes.pdf"))
    text = canvas.beginText(72, 700)
    parts = [
        ("Water boils at 100", 11, 0), ("1", 7, 4), (" degrees, 10", 11, 0), ("-3", 7, 4),
        (" of a part is H", 11, 0), ("2", 7, -2), ("O.", 11, 0),
    ]  # fmt: skip
    for part, size, rise in parts:
        text.setFont("Times-Roman", size)
        text.setRise(rise)
        text.textOut(part)
    canvas.drawText(text)
    canvas.save()
    assert markdown(only(tmp_path / "notes.pdf")) == (
        "Water boils at 100<sup>1</sup> degrees, 10<sup>-3</sup> of a part is H2O.\n"
    )


def test_words_of_two_lines_are_not_glued(tmp_path: Path) -> None:
    """What begins below the end of a large line: PDFium's own text has `Logic gatesGate`."""
    canvas = Canvas(str(tmp_path / "page.pdf"))
    paper.lines(canvas, 72, 760, paper.PROSE)
    canvas.setFont("Helvetica-Bold", 24)
    canvas.drawString(72, 600, "Logic gates")
    canvas.setFont("Helvetica", 10)
    canvas.drawString(72 + stringWidth("Logic gates", "Helvetica-Bold", 24), 590, "Gate")
    canvas.save()
    texts = [text for text in drafted(tmp_path / "page.pdf").texts if "at" in text]
    assert "Logic gates" in texts
    assert "Gate" in texts


@pytest.mark.parametrize("number", ["12", "\u2013 12 \u2013", "Page 12 of 340", "xii"])
@pytest.mark.parametrize(("y", "label"), [(765, "Page-header"), (78, "Page-footer")])
def test_the_number_of_a_page_is_no_heading(
    tmp_path: Path, number: str, y: int, label: str
) -> None:
    """One that is as large and bold as a heading, and further from the edge than most."""
    canvas = Canvas(str(tmp_path / "page.pdf"), pagesize=(paper.WIDTH, paper.HEIGHT))
    paper.lines(canvas, 72, 600, paper.PROSE)
    canvas.setFont("Helvetica-Bold", 18)
    canvas.drawCentredString(paper.WIDTH / 2, y, number)
    canvas.save()
    regions = [
        region for region in drafted(tmp_path / "page.pdf").regions if number in region.drafts
    ]
    assert [region.label for region in regions] == [label]


def test_marks_of_lists_that_stand_far_from_their_items_are_put_in_front(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("Helvetica", 10)
    for mark, text, y in [("\u2022", "one pear of the garden", 700), ("2.", "two plums", 670)]:
        canvas.drawString(100, y, text)
        canvas.drawString(72, y, mark)
    canvas.save()
    regions = drafted(tmp_path / "a.pdf").regions
    assert [(region.label, region.drafts[0]) for region in regions] == [
        ("List-item", "\u2022 one pear of the garden"),
        ("List-item", "2. two plums"),
    ]
