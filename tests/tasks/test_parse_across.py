"""Paragraphs that go on on the next page: joined where all signs say so, else not."""

from __future__ import annotations

from pathlib import Path

import pytest
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Paragraph, SimpleDocTemplate

from sooner.documents import Resolution, read_pages
from sooner.documents.drafters import TextLayer
from sooner.tasks.parse import DraftParser, ParsedPage
from sooner.tasks.parse.formats import render_document, render_page
from sooner.tasks.parse.formats.joined_pages import joined_pages, joined_paragraph
from tasks.pages_of import BOTTOM, INFO, TOP, Part, page

BEGUN = "The members of the team agreed that all of the work should be"
REST = "done by the end of the following year, and so it was."


def markdown(*pages: ParsedPage) -> str:
    return b"".join(render_document("md", pages, INFO)).decode()


def texts(*pages: ParsedPage) -> list[list[str]]:
    return [[block.text for block in page.blocks] for page in joined_pages(pages)]


def two(first: Part, second: Part, *rest: Part) -> list[list[str]]:
    return texts(page(1, first), page(2, second, *rest))


@pytest.mark.parametrize("divided", [False, True])
def test_a_paragraph_goes_on(divided: bool) -> None:
    begun, rest = (f"{BEGUN} fin-", f"ished {REST}") if divided else (BEGUN, REST)
    whole = f"{BEGUN} finished {REST}" if divided else f"{BEGUN} {REST}"
    first = page(1, ("Text", begun, BOTTOM), ("Page-footer", "1", None))
    second = page(2, ("Page-header", "A paper", None), ("Text", rest, TOP), ("Text", "End.", None))
    assert texts(first, second) == [[whole, "1"], ["A paper", "End."]]
    assert markdown(first, second) == f"{whole}\n\n1\n\nA paper\n\nEnd.\n"
    assert b"".join(render_document("html", [first, second], INFO)).count(whole.encode()) == 1
    # What a page says of itself stays as it is.
    assert render_page("md", second).decode() == second.markdown
    parts = next(joined_pages([first, second])).blocks[0].parts
    assert [whole[part.start : part.end].strip() for part in parts] == [begun.strip("-"), rest]
    assert [part.page for part in parts] == [1, 2]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f"{BEGUN}.", REST),
        (BEGUN, "(b) by the end of the following year"),
        (BEGUN, "[3] by the end of the following year"),
        (BEGUN, "\u00c9tienne and by the end of the year"),
        (f"{BEGUN}:", REST),
        (f"{BEGUN} so.\u201d", REST),
        (BEGUN, "Done by the end of the following year."),
        (BEGUN, "b) by the end of the following year"),
        (BEGUN, "- done by the end of the year"),
        (BEGUN, "let x = f (y) in print x and so on"),
        (BEGUN, "make install"),
        ("In the year 1999 the members of the team met in room 12", REST),
        ("1 See the report of the members of the team for all of the", REST),
        ("\u2020 See the report of the members of the team for all of the", REST),
        ("Two words", REST),
        (f"```\n{BEGUN}\n```", REST),
        (f"# {BEGUN}", REST),
        ("void map (d d Mapper f, const int count, const ColumnVector &a)", "void map (d d f) too"),
        ("以下の機能はすべて", "利用できます"),
    ],
)
def test_what_is_no_rest_of_a_sentence(first: str, second: str) -> None:
    assert joined_paragraph(first, second) is None
    assert two(("Text", first, BOTTOM), ("Text", second, TOP)) == [[first], [second]]


def test_tables_stay_on_their_pages() -> None:
    """Even where the next page has nothing but further rows below the same head."""
    rows = [
        "| Name | Born |\n| --- | --- |\n| Ann | 1901 |",
        "| Name | Born |\n| --- | --- |\n| Bob | 2 |",
    ]
    assert two(("Table", rows[0], BOTTOM), ("Table", rows[1], TOP)) == [[rows[0]], [rows[1]]]


def test_a_pdf_of_a_long_paragraph(tmp_path: Path) -> None:
    """From the file to the document: words all there, in order, and once."""
    words = " ".join(f"word{n}a goes on" for n in range(700))
    path = tmp_path / "text.pdf"
    story = [Paragraph(words, getSampleStyleSheet()["Normal"])]
    SimpleDocTemplate(str(path), pagesize=A4).build(story)
    parser, drafter = DraftParser(), TextLayer()
    pages = [
        parser(pdf_page, drafter(pdf_page))
        for pdf_page in read_pages(path, None, Resolution(dpi=72))
    ]
    assert len(pages) >= 3
    assert markdown(*pages).strip() == words
