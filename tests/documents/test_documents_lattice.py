"""Tables whose cells are drawn: which lines of text are in which cell."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("reportlab")
pytest.importorskip("pdfplumber")

from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import LongTable, Paragraph, SimpleDocTemplate

from documents.pages import drafted
from sooner.documents import Line, Resolution, read_pages
from sooner.documents.drafters import TextLayer
from sooner.documents.drafters.text_layer import drawn_tables
from sooner.documents.regions import Box
from sooner.documents.tables import Cell, read_table
from sooner.tasks.parse.formats import render_document
from sooner.tasks.parse.unverified import DraftParser
from tasks.pages_of import INFO

XS, YS = (100, 300, 500, 700), (200, 240, 280, 320)
GRID: list[Box] = [(*pair, XS[n + 1], YS[m + 1]) for m in range(3) for n in range(3)
                   for pair in [(XS[n], YS[m])]]  # fmt: skip


def line(text: str, column: int, row: int, down: float = 5.0) -> Line:
    left, top = XS[column] + 10.0, YS[row] + down
    return Line(text, (left, top, left + 10.0 * len(text), top + 15), 15.0)


CELLS = [line(f"{row}{column}", column, row) for row in range(3) for column in range(3)]


def table(lines: list[Line], cells: list[Box]) -> list[list[Cell]]:
    (region,), rest = drawn_tables(lines, [cells])
    assert rest == []
    return read_table(region.drafts[0])


def test_each_cell_has_the_text_between_its_lines() -> None:
    rows = table(CELLS, GRID)
    assert [[cell.text for cell in row] for row in rows] == [
        ["00", "01", "02"], ["10", "11", "12"], ["20", "21", "22"],
    ]  # fmt: skip


def test_lines_of_a_cell_are_one_text() -> None:
    assert table([*CELLS, line("goes on", 1, 1, 21)], GRID)[1][1] == Cell("11 goes on")


def test_boxes_on_a_page_are_no_table() -> None:
    assert drawn_tables(CELLS[:2], [GRID]) == ([], CELLS[:2])
    long = [Line("word " * 200, CELLS[0].bbox, 15.0), *CELLS[1:]]
    assert drawn_tables(long, [GRID]) == ([], long)


def test_a_missing_line_merges_two_cells(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for y in (700, 680, 640):
        canvas.line(100, y, 400, y)
    canvas.line(200, 660, 400, 660)
    canvas.line(200, 700, 200, 640)
    canvas.line(300, 680, 300, 640)
    for x in (100, 400):
        canvas.line(x, 700, x, 640)
    for text, x, y in [("n", 110, 685), ("wide", 210, 685), ("high", 110, 655), ("a", 210, 665),
                       ("b", 310, 665), ("c", 210, 645), ("d", 310, 645)]:  # fmt: skip
        canvas.drawString(x, y, text)
    canvas.save()
    (region,) = drafted(tmp_path / "a.pdf").regions
    assert read_table(region.drafts[0]) == [
        [Cell("n"), Cell("wide", columns=2)], [Cell("high", rows=2), Cell("a"), Cell("b")],
        [Cell("c"), Cell("d")],
    ]  # fmt: skip


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
    lines = [line.split("|")[1:3] for line in text.splitlines() if line]
    cells = [[cell.strip() for cell in line] for line in lines]
    heads = [["Name", "What it means"], ["---", "---"]]
    assert cells[:2] == heads
    assert [row for row in cells if row not in heads] == [
        [f"option-{n}", meaning.strip()] for n, meaning in enumerate(meanings)
    ]
