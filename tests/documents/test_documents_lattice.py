"""Tables whose cells are drawn: which lines of text are in which cell."""

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
from sooner.documents.lattice import drawn_tables, rules_of
from sooner.documents.regions import Box
from sooner.documents.tables import Cell, read_table
from sooner.tasks.parse.formats import render_document
from sooner.tasks.parse.unverified import DraftParser
from tasks.pages_of import INFO

SIZE = (1000, 1400)
XS, YS = (100, 300, 500, 700), (200, 240, 280, 320)


def line(text: str, column: int, row: int, down: float = 5.0) -> Line:
    left, top = XS[column] + 10.0, YS[row] + down
    return Line(text, (left, top, left + 10.0 * len(text), top + 15), 15.0)


def drawn(*missing: Box) -> list[Box]:
    """All sides of three rows and columns, each by itself, but those that are missing."""
    across: list[Box] = [(x, y, x + 200, y + 2) for x in XS[:-1] for y in YS]
    down: list[Box] = [(x, y, x + 2, y + 40) for x in XS for y in YS[:-1]]
    return [box for box in [*across, *down] if box not in missing]


CELLS = [line(f"{row}{column}", column, row) for row in range(3) for column in range(3)]


def table(lines: list[Line], rules: list[Box]) -> list[list[Cell]]:
    (region,), rest = drawn_tables(lines, rules, SIZE)
    assert rest == []
    return read_table(region.drafts[0])


def test_each_cell_has_the_text_between_its_lines() -> None:
    rows = table(CELLS, drawn())
    assert [[cell.text for cell in row] for row in rows] == [
        ["00", "01", "02"], ["10", "11", "12"], ["20", "21", "22"],
    ]  # fmt: skip


def test_a_missing_line_merges_two_cells() -> None:
    lines = [item for item in CELLS if item.text not in ("01", "20")]
    rows = table(lines, drawn((300, 200, 302, 240), (100, 280, 300, 282)))
    assert rows[0] == [Cell("00", columns=2), Cell("02")]
    assert rows[1][0] == Cell("10", rows=2)
    assert [cell.text for cell in rows[2]] == ["21", "22"]


def test_lines_of_a_cell_merge_and_rows_without_a_rule_are_left_to_their_columns() -> None:
    wrapped = [*CELLS, line("goes on", 1, 1, 21)]
    assert table(wrapped, drawn())[1][1] == Cell("11 goes on")
    open_rows: list[Box] = [(x, 280, x + 200, 282) for x in XS[:-1]]
    assert drawn_tables(CELLS, drawn(*open_rows), SIZE) == ([], CELLS)


def test_lines_of_a_row_whose_texts_do_not_stand_in_rows_are_no_rows() -> None:
    high = [line("one", 0, 0, 4), line("two", 0, 0, 20), line("a", 1, 0, -4), line("b", 1, 0, 12),
            line("c", 1, 0, 28), *CELLS[3:]]  # fmt: skip
    assert [cell.text for cell in table(high, drawn())[0]] == ["one two", "a b c", ""]


def test_a_table_from_right_to_left_begins_on_the_right() -> None:
    hebrew = [Line("\u05d0" + item.text, item.bbox, item.size) for item in CELLS]
    assert table(hebrew, drawn())[0][0].text.endswith("02")


def test_boxes_on_a_page_are_no_table() -> None:
    frame = [box for box in drawn() if box[0] in (100, 700) or box[1] in (200, 320)]
    alone: list[Box] = [(100, 200, 700, 202), (100, 320, 700, 322), (100, 200, 102, 320)]
    assert drawn_tables(CELLS, alone, SIZE) == ([], CELLS)
    few = CELLS[:2]
    assert drawn_tables(few, frame, SIZE)[1] == few
    long = [Line("word " * 200, CELLS[0].bbox, 15.0), *CELLS[1:]]
    assert drawn_tables(long, drawn(), SIZE) == ([], long)


def test_parts_of_a_rule_are_joined_and_areas_are_none() -> None:
    parts: list[Box] = [(left, 200, left + 200, 202) for left in (100, 301, 502)]
    assert rules_of([*parts, (100, 300, 700, 302)], SIZE) == [
        (100, 200, 702, 202), (100, 300, 700, 302)
    ]  # fmt: skip
    assert rules_of([(100, 200, 900, 260), (100, 200, 104, 203)], SIZE) == []  # an area, a dot


def test_a_long_table_of_a_pdf_has_each_row_once(tmp_path: Path) -> None:
    """Cells of one to three lines, over several pages with the head on each of them."""
    style = getSampleStyleSheet()["Normal"]
    meanings = [f"meaning {n} " + "of many words " * (1 + n % 7) for n in range(60)]
    rows = [[f"option-{n}", Paragraph(text, style)] for n, text in enumerate(meanings)]
    path = tmp_path / "options.pdf"
    look = [("GRID", (0, 0), (-1, -1), 0.5, "black"), ("VALIGN", (0, 0), (-1, -1), "TOP")]
    table = LongTable([["Name", "What it means"], *rows], [120, 200], repeatRows=1, style=look)
    SimpleDocTemplate(str(path), pagesize=A4).build([table])
    drafter, parser = TextLayer(), DraftParser()
    pages = [parser(page, drafter(page)) for page in read_pages(path, None, Resolution(dpi=72))]
    assert len(pages) >= 3
    text = b"".join(render_document("md", pages, INFO)).decode()
    cells = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines()]
    assert cells[0] == ["Name", "What it means"]
    assert cells[2:] == [[f"option-{n}", meaning.strip()] for n, meaning in enumerate(meanings)]
