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
from tasks.pages_of import BOTTOM, MIDDLE, TOLD, TOP, Part, page

BEGUN = "The members of the team agreed that all of the work should be"
REST = "done by the end of the following year, and so it was."

HEAD = "| Name | Born |\n| --- | --- |"
ROWS = "\n| Ann | 1901 |\n| Bob | 1902 |"
MORE = "\n| Cid | 1903 |\n| Dan | 1904 |"
HTML = "<table><thead><tr><th>Name</th><th>Born</th></tr></thead><tbody>{}</tbody></table>"


def markdown(*pages: ParsedPage) -> str:
    return b"".join(render_document("md", pages, TOLD)).decode()


def texts(*pages: ParsedPage) -> list[list[str]]:
    return [[block.text for block in page.blocks] for page in joined_pages(pages)]


def two(first: Part, second: Part, *behind: Part) -> list[list[str]]:
    return texts(page(1, first), page(2, second, *behind))


@pytest.mark.parametrize("divided", [False, True])
def test_a_paragraph_goes_on(divided: bool) -> None:
    begun, rest = (f"{BEGUN} fin-", f"ished {REST}") if divided else (BEGUN, REST)
    whole = f"{BEGUN} finished {REST}" if divided else f"{BEGUN} {REST}"
    first = page(1, ("Text", begun, BOTTOM), ("Page-footer", "1", None))
    second = page(2, ("Page-header", "A paper", None), ("Text", rest, TOP), ("Text", "End.", None))
    assert texts(first, second) == [[whole, "1"], ["A paper", "End."]]
    assert markdown(first, second) == f"{whole}\n\n1\n\nA paper\n\nEnd.\n"
    assert b"".join(render_document("html", [first, second], TOLD)).count(whole.encode()) == 1
    # What a page says of itself stays as it is.
    assert render_page("md", second).decode() == second.markdown
    parts = next(joined_pages([first, second])).blocks[0].parts
    assert [whole[one.start : one.end].strip() for one in parts] == [begun.strip("-"), rest]
    assert [one.page for one in parts] == [1, 2]


def test_a_small_letter_may_stand_in_brackets() -> None:
    rest = "(as was said before) done by the end of the year."
    assert two(("Text", BEGUN, BOTTOM), ("Text", rest, TOP)) == [[f"{BEGUN} {rest}"], []]


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


@pytest.mark.parametrize("label", ["Picture", "Section-header", "Caption", "Formula", "Table"])
def test_something_between_parts_paragraphs(label: str) -> None:
    parts = ("Text", BEGUN, MIDDLE), (label, "x", BOTTOM)
    assert len(texts(page(1, *parts), page(2, ("Text", REST, TOP)))[1]) == 1
    parts = (label, "x", TOP), ("Text", REST, MIDDLE)
    assert len(texts(page(1, ("Text", BEGUN, BOTTOM)), page(2, *parts))[1]) == 2


def test_a_failed_or_cut_page_parts() -> None:
    first, second = page(1, ("Text", BEGUN, BOTTOM)), page(3, ("Text", REST, TOP))
    assert texts(first, second) == [[BEGUN], [REST]]
    cut = page(1, ("Text", BEGUN, BOTTOM), status="PARTIAL", truncated="length")
    assert texts(cut, page(2, ("Text", REST, TOP))) == [[BEGUN], [REST]]
    blank = page(2)
    assert texts(first, blank, second) == [[BEGUN], [], [REST]]


def test_a_page_that_is_not_full_ends() -> None:
    assert two(("Text", BEGUN, TOP), ("Text", REST, TOP)) == [[BEGUN], [REST]]
    assert two(("Text", BEGUN, BOTTOM), ("Text", REST, BOTTOM)) == [[BEGUN], [REST]]


def test_a_footnote_stays_where_it_is() -> None:
    note = "1 Or nearly all of the members who were there and wanted to"
    marked = ("Footnote", note, BOTTOM)
    first = page(1, ("Text", BEGUN, BOTTOM), marked)
    assert texts(first, page(2, ("Text", REST, TOP))) == [[f"{BEGUN} {REST}", note], []]
    unmarked = page(1, ("Text", BEGUN, BOTTOM), ("Text", note, BOTTOM))
    assert texts(unmarked, page(2, ("Text", REST, TOP))) == [[BEGUN, note], [REST]]


def test_terms_and_their_meanings_are_apart() -> None:
    terms = [
        f"{word} Declares a thing that can be used in all of the code" for word in ["ab", "cd"]
    ]
    first = page(1, ("Text", "Keywords.", MIDDLE), ("Text", terms[0], BOTTOM))
    assert texts(first, page(2, ("Text", terms[1], TOP))) == [["Keywords.", terms[0]], [terms[1]]]


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
    found = texts(*pages)
    whole = table("01", "02", "03", "04", "05", head=True)
    assert found == [[whole], [], [], ["The end."]]
    assert markdown(*pages) == f"{whole}\n\nThe end.\n"


@pytest.mark.parametrize(
    ("second", "behind"),
    [
        ("| A | B | C |\n| --- | --- | --- |\n| 1 | 2 | 3 |", ()),  # other columns
        ("| Town | Built |\n| --- | --- |\n| Ulm | 1377 |", ()),  # another head above numbers
        ("| Town | Born |\n| --- | --- |\n| Ulm | 1377 |", ()),  # partly the same one
        (HTML.format("<tr><td>Cid</td><td>1903</td></tr>"), ()),  # written in another way
        (f"| Cid | 1903 |\n| --- | --- |{ROWS}", (("Caption", "Table 2: others", None),)),
    ],
)
def test_another_table_is_apart(second: str, behind: tuple[Part, ...]) -> None:
    first = HEAD + ROWS
    found = two(("Table", first, BOTTOM), ("Table", second, (50, 90, 550, 200)), *behind)
    assert found == [[first], [second, *(text for _, text, _ in behind)]]


@pytest.mark.parametrize("between", ["Text", "Caption", "Section-header", "Picture", "Footnote"])
def test_something_between_parts_tables(between: str) -> None:
    table, more = ("Table", HEAD + ROWS, BOTTOM), ("Table", HEAD + MORE, TOP)
    first, second = page(1, table, (between, "Of those below.", BOTTOM)), page(2, more)
    assert len(texts(first, second)[1]) == 1
    if between != "Footnote":
        assert len(texts(page(1, table), page(2, (between, "Of those.", TOP), more))[1]) == 2


def test_a_headless_table_at_other_edges_or_nowhere_is_apart() -> None:
    more = MORE.strip().replace("\n", "\n| --- | --- |\n", 1)
    aligned = two(("Table", HEAD + ROWS, BOTTOM), ("Table", more, TOP))
    assert aligned == [[HEAD + ROWS + MORE], []]
    narrow = (50.0, 90.0, 300.0, 200.0)
    for box in (narrow, None):
        found = two(("Table", HEAD + ROWS, BOTTOM), ("Table", more, box))
        assert found == [[HEAD + ROWS], [more]]
    # A head that is repeated is proof enough.
    found = two(("Table", HEAD + ROWS, None), ("Table", HEAD + MORE, None))
    assert found == [[HEAD + ROWS + MORE], []]


def test_a_table_goes_on_that_its_region_and_the_markdown_write_differently() -> None:
    """dots.ocr's own HTML is kept in the region, and written on one line in the Markdown."""

    def half(number: int, *rows: str) -> ParsedPage:
        lines = "\n".join(f"<tr><td>{row}</td><td>19{row}</td></tr>" for row in rows)
        text = f'<table class="t">\n{lines}\n</table>'
        one_line = "".join(f"<tr><td>{row}</td><td>19{row}</td></tr>" for row in rows)
        box = (50, 90, 550, 730)
        markdown = f"<table>{one_line}</table>\n"
        return page(number, ("Table", text, box), form="dots", markdown=markdown)

    pages = half(1, "Name", "01"), half(2, "Name", "02")
    (whole,), behind = texts(*pages)
    assert whole.startswith('<table class="t">\n<tr><td>Name')
    assert whole.endswith("<td>1901</td></tr>\n<tr><td>02</td><td>1902</td></tr>\n</table>")
    assert behind == []
    text = markdown(*pages)
    assert text.count("<table>") == text.count("1902") == text.count("Name</td>") - 1 == 1


def test_text_that_is_not_found_in_the_markdown_is_left_alone() -> None:
    first = page(1, ("Text", BEGUN, BOTTOM), markdown="Something else.\n")
    second = page(2, ("Text", REST, TOP))
    assert texts(first, second) == [[BEGUN], [REST]]
    assert markdown(first, second) == f"Something else.\n\n{REST}\n"


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
def test_a_page_may_say_that_its_table_goes_on(mark: str) -> None:
    """Then neither edges nor a head are needed, and the words are left out."""
    more = MORE.strip().replace("\n", "\n| --- | --- |\n", 1)
    table, rest = ("Table", HEAD + ROWS, None), ("Table", more, None)
    told = ("Text", mark, None)
    for first, second in (
        (page(1, table, told), page(2, rest)),
        (page(1, table), page(2, told, rest)),
        (page(1, table, told), page(2, ("Caption", mark, None), rest)),
    ):
        assert texts(first, second) == [[HEAD + ROWS + MORE], []]
        assert markdown(first, second) == HEAD + ROWS + MORE + "\n"
    other = page(2, ("Table", "| A | B | C |\n| --- | --- | --- |\n| 1 | 2 | 3 |", None))
    assert len(texts(page(1, table, told), other)[0]) == 2
    prose = page(1, ("Text", BEGUN, BOTTOM), told), page(2, ("Text", REST, TOP))
    assert texts(*prose) == [[BEGUN, mark], [REST]]


def test_rows_that_are_alike_are_no_head() -> None:
    """Below a head that is repeated, the same row twice is two rows."""
    second = HEAD + "\n| Ann | 1901 |\n| Eve | 1905 |"
    (whole,), _ = two(("Table", HEAD + ROWS, None), ("Table", second, None))
    assert whole == HEAD + ROWS + "\n| Ann | 1901 |\n| Eve | 1905 |"
    double = "<table><tr><th rowspan='2'>Name</th><th>Of</th></tr><tr><th>Birth</th></tr>{}</table>"
    rows = ["<tr><td>Ann</td><td>1901</td></tr>", "<tr><td>Bob</td><td>1902</td></tr>"]
    halves = [("Table", double.format(row), None) for row in rows]
    pages = [
        page(n, half, form="markdown-html", markdown=half[1]) for n, half in enumerate(halves, 1)
    ]
    assert texts(*pages) == [[double.format("".join(rows))], []]


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
    found = list(joined_pages(pages))
    labels = [[block.label for block in page.blocks] for page in found]
    assert labels[1] == ["Page-header", "Text", "Page-footer"]
    assert found[0].blocks[2].text == f"{BEGUN} {REST}"
    plain = b"".join(render_document("md", pages, TOLD, furniture=False)).decode()
    assert "A Paper" not in plain
    assert "A Paper" in markdown(*pages)
    alone = b"".join(render_document("md", pages[:1], TOLD, furniture=False)).decode()
    assert "Bob" in alone  # nobody repeats it


def test_heads_of_a_table_at_the_page_s_top_are_no_page_headers() -> None:
    """Columns that go on, each below its own head: these stand close to what is below them."""
    left, right = (50.0, 70.0, 90.0, 80.0), (300.0, 70.0, 360.0, 80.0)
    above, second = (50.0, 20.0, 300.0, 32.0), (50.0, 34.0, 300.0, 46.0)
    pages = [
        page(
            number,
            ("Section-header", "A Paper", above),
            ("Text", "of the second part", second),
            ("Section-header", "### File", left),
            ("Text", f"fstab-{number}", (50.0, 85.0, 90.0, 200.0)),
            ("Section-header", "### Description", right),
            ("Text", f"where disks are, {number}", (300.0, 85.0, 500.0, 200.0)),
        )
        for number in range(1, 4)
    ]
    plain = b"".join(render_document("md", pages, TOLD, furniture=False)).decode()
    assert plain.count("File") == plain.count("Description") == 3
    assert "A Paper" not in plain
    assert "second part" not in plain


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
    plain = b"".join(render_document("md", pages, TOLD, furniture=False)).decode()
    assert [text in plain.split() for text in first.split()] == [not counts] * 3


def test_slides_keep_their_headings() -> None:
    parts = ("Section-header", "## Results", (50.0, 20.0, 300.0, 60.0)), ("Text", "One.", TOP)
    slides = [page(number, *parts, size=(800, 600)) for number in (1, 2, 3)]
    assert b"".join(render_document("md", slides, TOLD, furniture=False)).count(b"Results") == 3


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
        pages = [parser(one, drafter(one)) for one in read_pages(path, None, Resolution(dpi=72))]
        assert len(pages) >= 3
        text = markdown(*pages)
        if name == "table":
            assert text.count("Name") == text.count("| --- | --- | --- |") == 1
            assert [line.split("|")[1].strip() for line in text.splitlines()[2:]] == [
                row[0] for row in rows
            ]
        else:
            assert text.strip() == words
