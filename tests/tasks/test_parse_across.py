"""Tables and paragraphs that go on on the next page: joined where all signs say so, else not."""

from __future__ import annotations

from pathlib import Path

import pytest
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import LongTable, Paragraph, SimpleDocTemplate

from sooner.documents import Resolution, read_pages
from sooner.documents.drafters import TextLayer
from sooner.tasks.parse import DraftParser, ParsedPage
from sooner.tasks.parse.formats import render_document, render_page
from sooner.tasks.parse.formats.continued import joined_paragraph
from sooner.tasks.parse.formats.joined_pages import joined_pages
from tasks.pages_of import BOTTOM, INFO, MIDDLE, TOP, Part, page

BEGUN = "The members of the team agreed that all of the work should be"
REST = "done by the end of the following year, and so it was."

HEAD = "| Name | Born |\n| --- | --- |"
ROWS = "\n| Ann | 1901 |\n| Bob | 1902 |"
MORE = "\n| Cid | 1903 |\n| Dan | 1904 |"
HTML = "<table><thead><tr><th>Name</th><th>Born</th></tr></thead><tbody>{}</tbody></table>"


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


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("form", ["pipes", "html"])
def test_a_table_goes_on_over_three_pages(repeats: bool, form: str) -> None:
    def table(*rows: str, head: bool) -> str:
        if form == "pipes":
            lines = [f"| {row} | 19{row} |" for row in rows]
            first = ["| Name | Born |"] if head else [lines.pop(0)]
            return "\n".join([*first, "| --- | --- |", *lines])
        start = "<tr><th>Name</th><th>Born</th></tr>" if head else ""
        return (
            f"<table>{start}{''.join(f'<tr><td>{r}</td><td>19{r}</td></tr>' for r in rows)}</table>"
        )

    parts = [
        table("01", "02", head=True),
        table("03", "04", head=repeats),
        table("05", head=repeats),
    ]
    pages = [page(n, ("Table", text, (50, 90, 550, 730))) for n, text in enumerate(parts, 1)]
    pages.append(page(4, ("Text", "The end.", TOP)))
    style = {"pipes": "markdown", "html": "markdown-html"}[form]
    pages = [page(p.number, *[(r.label, r.text, r.bbox) for r in p.regions], form=style,
                  markdown=f"{p.regions[0].text}\n") for p in pages]  # fmt: skip
    if form == "pipes" and not repeats:
        parts = parts[:2]  # a single row has no line below it
    actual = texts(*pages)
    whole = table("01", "02", "03", "04", "05", head=True)
    assert actual == [[whole], [], [], ["The end."]]
    assert markdown(*pages) == f"{whole}\n\nThe end.\n"


@pytest.mark.parametrize(
    ("second", "rest"),
    [
        ("| A | B | C |\n| --- | --- | --- |\n| 1 | 2 | 3 |", ()),  # other columns
        ("| Town | Built |\n| --- | --- |\n| Ulm | 1377 |", ()),  # another head above numbers
        ("| Town | Born |\n| --- | --- |\n| Ulm | 1377 |", ()),  # partly the same one
        (HTML.format("<tr><td>Cid</td><td>1903</td></tr>"), ()),  # written in another way
        (f"| Cid | 1903 |\n| --- | --- |{ROWS}", (("Caption", "Table 2: others", None),)),
    ],
)
def test_another_table_is_apart(second: str, rest: tuple[Part, ...]) -> None:
    first = HEAD + ROWS
    actual = two(("Table", first, BOTTOM), ("Table", second, (50, 90, 550, 200)), *rest)
    assert actual == [[first], [second, *(text for _, text, _ in rest)]]


@pytest.mark.parametrize(
    "mark",
    [
        "continues on next page",
        "(continued)",
        "Table 1.2 \u2013 continued from previous page",
        "Table 3 (cont.)",
        "**Continued on the next page**",
    ],
)
def test_a_page_may_mark_that_its_table_goes_on(mark: str) -> None:
    """Then neither edges nor a head are needed, and the words are left out."""
    more = MORE.strip().replace("\n", "\n| --- | --- |\n", 1)
    table, rest = ("Table", HEAD + ROWS, None), ("Table", more, None)
    note = ("Text", mark, None)
    for first, second in (
        (page(1, table, note), page(2, rest)),
        (page(1, table), page(2, note, rest)),
        (page(1, table, note), page(2, ("Caption", mark, None), rest)),
    ):
        assert texts(first, second) == [[HEAD + ROWS + MORE], []]
        assert markdown(first, second) == HEAD + ROWS + MORE + "\n"
    other = page(2, ("Table", "| A | B | C |\n| --- | --- | --- |\n| 1 | 2 | 3 |", None))
    assert len(texts(page(1, table, note), other)[0]) == 2
    prose = page(1, ("Text", BEGUN, BOTTOM), note), page(2, ("Text", REST, TOP))
    assert texts(*prose) == [[BEGUN, mark], [REST]]


def test_headers_that_nobody_marked_are_seen_by_their_repetition() -> None:
    """Left and right pages have different ones; those between two halves of a sentence."""
    top, foot = (50.0, 40.0, 300.0, 60.0), (50.0, 770.0, 80.0, 785.0)
    pages = [
        page(
            number,
            (("Text", "Section-header")[number % 2], ("A Paper", "Ann and Bob")[number % 2], top),
            ("Text", REST if number == 2 else "Beginning.", TOP),
            ("Text", BEGUN if number == 1 else "And its end.", BOTTOM),
            ("Text", str(number), foot),
        )
        for number in range(1, 5)
    ]  # fmt: skip
    result = list(joined_pages(pages))
    labels = [[block.label for block in page.blocks] for page in result]
    assert labels[1] == ["Page-header", "Text", "Page-footer"]
    assert result[0].blocks[2].text == f"{BEGUN} {REST}"
    plain = b"".join(render_document("md", pages, INFO, furniture=False)).decode()
    assert "A Paper" not in plain
    assert "A Paper" in markdown(*pages)
    alone = b"".join(render_document("md", pages[:1], INFO, furniture=False)).decode()
    assert "Bob" in alone  # nobody repeats it


@pytest.mark.parametrize(
    ("first", "counts"),
    [("7 8 9", True), ("xi xii xiii", True), ("iv v vi", True), ("214 232 240", False)],
)
def test_numbers_at_the_edge_are_page_numbers_if_they_count_the_pages(
    first: str, counts: bool
) -> None:
    """A chapter's page in a table of contents may stand at the same height on each page."""
    spot = (500.0, 40.0, 540.0, 60.0)
    pages = [
        page(number, ("Section-header", f"### {text}", spot), ("Text", "Beginning.", MIDDLE))
        for number, text in enumerate(first.split(), 1)
    ]
    plain = b"".join(render_document("md", pages, INFO, furniture=False)).decode()
    assert [text in plain.split() for text in first.split()] == [not counts] * 3


def test_pdfs_of_a_long_table_and_a_long_paragraph(tmp_path: Path) -> None:
    """From the file to the document: rows and words all there, in order, and once."""
    rows = [[f"item {n}", str(n), f"{n}.50"] for n in range(120)]
    words = " ".join(f"word{n}a goes on" for n in range(700))
    style = getSampleStyleSheet()["Normal"]
    for name, story in (
        ("table", [LongTable([["Name", "Count", "Price"], *rows], [120] * 3, repeatRows=1)]),
        ("text", [Paragraph(words, style)]),
    ):
        path = tmp_path / f"{name}.pdf"
        SimpleDocTemplate(str(path), pagesize=A4).build(story)
        parser, drafter = DraftParser(), TextLayer()
        pages = [
            parser(pdf_page, drafter(pdf_page))
            for pdf_page in read_pages(path, None, Resolution(dpi=72))
        ]
        assert len(pages) >= 3
        text = markdown(*pages)
        if name == "table":
            assert text.count("Name") == text.count("| --- | --- | --- |") == 1
            assert [line.split("|")[1].strip() for line in text.splitlines()[2:]] == [
                row[0] for row in rows
            ]
        else:
            assert text.strip() == words
