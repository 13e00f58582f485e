"""Tables between lines that are drawn: which rows they tell, and where they tell none."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import LongTable, Paragraph, SimpleDocTemplate

from sooner.documents import Line, Resolution, read_pages
from sooner.documents.drafters import TextLayer
from sooner.documents.regions import Box
from sooner.documents.ruled import drawn_tables, rules_of
from sooner.documents.tables import grid, read_table
from sooner.tasks.parse.formats import render_document
from sooner.tasks.parse.unverified import DraftParser
from tasks.pages_of import INFO

SIZE = (1000, 1400)

HEIGHT = 20.0


def line(text: str, left: float, top: float, right: float | None = None) -> Line:
    end = left + 10.0 * len(text) if right is None else right
    return Line(text, (left, top, end, top + HEIGHT), HEIGHT)


def across(*tops: float, left: float = 100, right: float = 900) -> list[Box]:
    return [(left, top, right, top + 2) for top in tops]


WRAPPED = [
    line("File", 110, 205), line("Description", 400, 205),
    line("fstab", 110, 245), line("Where disks are", 400, 235), line("(optional)", 400, 257),
    line("group", 110, 285), line("Who is who", 400, 285),
]  # fmt: skip


def tables_of(lines: list[Line], rules: list[Box]) -> tuple[list[list[list[str]]], int]:
    tables, rest = drawn_tables(lines, rules_of(rules, SIZE), SIZE)
    return [grid(read_table(table.drafts[0])) for table in tables], len(rest)


def test_the_lines_of_a_cell_are_joined() -> None:
    title, below = line("A page about files", 100, 100), line("Behind the table.", 100, 340)
    tables, rest = tables_of([title, *WRAPPED, below], across(200, 230, 280, 310))
    assert tables == [
        [["File", "Description"], ["fstab", "Where disks are (optional)"], ["group", "Who is who"]]
    ]
    assert rest == 2


def test_a_head_may_stand_above_the_first_rule() -> None:
    caption = line("Table 1: files of the system", 110, 178)
    tables, rest = tables_of([caption, *WRAPPED], across(230, 280, 310))
    assert tables[0][0] == ["File", "Description"]
    assert [len(table) for table in tables] == [3]
    assert rest == 1
    tables, rest = tables_of([caption, *WRAPPED[2:]], across(200, 280, 310))
    assert [len(table) for table in tables] == [2]  # what is above is no head
    assert rest == 1


def test_vertical_rules_divide_columns_and_parts_of_a_rule_are_joined() -> None:
    parts = [
        box for top in (200, 230, 280, 310)
        for box in ((100, top, 390, top + 2), (391, top, 900, top + 2))
    ]  # fmt: skip
    down = [(left, 200, left + 2, 312) for left in (100, 390, 600, 900)]
    lines = [*WRAPPED, line("Who", 610, 205), line("root", 610, 245)]
    tables, rest = tables_of(lines, [*parts, *down])
    assert [row[2] for row in tables[0]] == ["Who", "root", ""]
    assert rest == 0
    assert len(rules_of([*parts, *down], SIZE)) == 8
    assert rules_of([(100, 200, 900, 260), (100, 200, 104, 203)], SIZE) == []  # an area, a dot


@pytest.mark.parametrize(
    "rules",
    [
        across(200, 310),
        [*across(200, 230, 280, 310), (390, 255, 900, 257)],  # beside a cell over two rows
        [*across(200, 230), *across(280, 310, right=700)],
    ],
)
def test_rules_that_do_not_tell_rows_leave_the_lines_alone(rules: list[Box]) -> None:
    lines = [
        line(text, left, top)
        for top in (205, 240, 262, 287)
        for left, text in ((110, "pear"), (400, "12.5"))
    ]
    assert tables_of(lines, rules) == ([], len(lines))


def test_each_line_is_a_row_where_several_stand_between_two_rules() -> None:
    lines = [
        line(text, left, top)
        for top in (205, 240, 262, 287)
        for left, text in ((110, "pear"), (400, "12.5"))
    ]
    assert tables_of(lines, across(200, 230, 310)) == ([[["pear", "12.5"]] * 4], 0)


def test_the_last_row_may_have_no_rule_below_it() -> None:
    heading = line("2. What comes next", 60, 330)  # as near as a line of the same cell
    second = [line("Name", 110, 400), line("Meaning", 400, 400), line("x", 110, 435)]
    below = [line("what it", 400, 430), line("is", 400, 452), line("y", 110, 490)]
    lines = [*WRAPPED, heading, *second, *below, line("not", 400, 490)]
    tables, rest = tables_of(lines, across(200, 230, 280, 425, 480, 520))
    assert [[row[0] for row in table] for table in tables] == [
        ["File", "fstab", "group"], ["Name", "x", "y"],
    ]  # fmt: skip
    assert tables[1][1][1] == "what it is"
    assert rest == 1


def test_a_cell_that_reaches_into_the_next_column_leaves_the_table_to_its_places() -> None:
    lines = [
        *WRAPPED, line("initramfs of the system that boots", 110, 315), line("x", 600, 315),
        line("kernel", 110, 345), line("What boots", 400, 345),
    ]  # fmt: skip
    assert tables_of(lines, across(200, 230, 280, 310, 340, 370)) == ([], len(lines))


def test_text_between_the_rules_of_a_page_s_header_and_footer_is_no_table() -> None:
    lines = [
        line("Left head", 100, 30), line("right", 700, 30),
        line("A paragraph that goes over all of the width of the page and further", 100, 100, 890),
        *WRAPPED, line("3", 100, 1350), line("of 9", 700, 1350),
    ]  # fmt: skip
    rules = across(20, 60, 200, 230, 280, 310, 1340, 1380)
    tables, rest = tables_of(lines, rules)
    assert [len(table) for table in tables] == [3]
    assert rest == 5


def test_a_long_ruled_table_of_a_pdf_has_each_row_once(tmp_path: Path) -> None:
    """Cells of one to three lines, over several pages with the head on each of them."""
    style = getSampleStyleSheet()["Normal"]
    meanings = [f"meaning {n} " + "of many words " * (1 + n % 7) for n in range(60)]
    rows = [[f"option-{n}", Paragraph(text, style)] for n, text in enumerate(meanings)]
    path = tmp_path / "options.pdf"
    for ruled in (("GRID", (0, 0), (-1, -1), 0.5, "black"),
                  ("LINEBELOW", (0, 0), (-1, -1), 0.5, "black")):  # fmt: skip
        look = [
            ruled,
            ("LINEABOVE", (0, 0), (-1, 0), 0.5, "black"),
            ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ]
        table = LongTable([["Name", "What it means"], *rows], [120, 200], repeatRows=1, style=look)
        SimpleDocTemplate(str(path), pagesize=A4).build([table])
        drafter, parser = TextLayer(), DraftParser()
        pages = [parser(page, drafter(page)) for page in read_pages(path, None, Resolution(dpi=72))]
        assert len(pages) >= 3
        text = b"".join(render_document("md", pages, INFO)).decode()
        cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines()]
        assert cells[0] == ["Name", "What it means"]
        assert cells[2:] == [[f"option-{n}", meaning.strip()] for n, meaning in enumerate(meanings)]
