"""Small PDFs, drawn for the tests."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image
from reportlab.lib.pagesizes import A4
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from sooner.documents import Page, Resolution, read_pages

WIDTH, HEIGHT = A4
LEFT = [
    "The first column begins here and",
    "goes on with a second line of it.",
    "It ends before the other one starts.",
]
RIGHT = [
    "Only now the second column is read",
    "by someone who knows how to read,",
    "and that is the end of the page.",
]
TABLE = [["Fruit", "Count", "Price"], ["Apples", "12", "3.50"], ["Pears", "7", "4.25"]]
ITEMS = ["Wash the fruit.", "Peel the fruit.", "Eat the fruit."]
PROSE = [
    "This paragraph stands below the heading and has",
    "three lines, of which the last one is hyphen-",
    "ated, as it may be in a printed book.",
]


def page_numbers(path: Path, count: int, **options: Any) -> Path:
    """A PDF whose pages say their number, all else being options of the canvas."""
    canvas = Canvas(str(path), pagesize=A4, **options)
    for number in range(1, count + 1):
        canvas.setFont("Helvetica", 14)
        canvas.drawString(72, 700, f"This is page number {number} of a document.")
        canvas.showPage()
    canvas.save()
    return path


def report(path: Path) -> Path:
    """One column: a title, a heading, a paragraph, a list, a table, a header and a footer."""
    canvas = Canvas(str(path), pagesize=A4)
    write_report(canvas)
    canvas.save()
    return path


def write_report(canvas: Canvas) -> None:
    canvas.setFont("Helvetica", 9)
    canvas.drawString(72, HEIGHT - 36, "Journal of Fruit")
    canvas.drawCentredString(WIDTH / 2, 30, "17")
    canvas.setFont("Helvetica-Bold", 24)
    canvas.drawString(72, 740, "A Report on Fruit")
    canvas.setFont("Helvetica-Bold", 14)
    canvas.drawString(72, 690, "1 What was done")
    lines(canvas, 72, 665, PROSE)
    lines(canvas, 72, 600, [f"\u2022 {item}" for item in ITEMS], leading=20)
    canvas.setFont("Helvetica", 11)
    for row, cells in enumerate(TABLE):
        for column, text in enumerate(cells):
            canvas.drawString(72 + 120 * column, 520 - 18 * row, text)


def columns(path: Path) -> Path:
    """A title over two columns, of which the file lists the right one first."""
    canvas = Canvas(str(path), pagesize=A4)
    canvas.setFont("Helvetica-Bold", 22)
    canvas.drawString(72, 740, "A Page in Two Columns of Text")
    lines(canvas, 320, 700, RIGHT)
    lines(canvas, 72, 700, LEFT)
    canvas.save()
    return path


def turned(path: Path) -> Path:
    """A page written sideways, which its rotation of 90 degrees makes upright."""
    canvas = Canvas(str(path), pagesize=A4)
    canvas.setPageRotation(90)
    canvas.rotate(90)
    canvas.translate(0, -WIDTH)
    canvas.setFont("Helvetica", 14)
    canvas.drawString(100, 500, "Upright after all")
    canvas.save()
    return path


def scan(
    path: Path, source: Path, dpi: int = 150, note: str = "", canvas_class: type[Canvas] = Canvas
) -> Path:
    """The first page of a PDF as nothing but a picture, with a note as text on top of it."""
    page = next(iter(read_pages(source, resolution=Resolution(dpi=dpi))))
    assert isinstance(page, Page)
    file = io.BytesIO()
    Image.fromarray(page.picture).save(file, "PNG")
    canvas = canvas_class(str(path), pagesize=A4)
    canvas.drawImage(ImageReader(file), 0, 0, WIDTH, HEIGHT)
    if note:
        canvas.drawString(72, 20, note)
    canvas.save()
    return path


def without_pages(path: Path) -> Path:
    """A PDF whose list of pages is empty."""
    pages = b"<< /Type /Pages /Kids [] /Count 0 >>"
    return of_objects(path, b"<< /Type /Catalog /Pages 2 0 R >>", pages)


def of_objects(path: Path, *objects: bytes) -> Path:
    """A PDF of these objects, numbered from 1, of which the first one is the catalog."""
    data, places = b"%PDF-1.5\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start, count = len(data), len(objects) + 1
    data += b"xref\n0 %d\n0000000000 65535 f \n%s" % (count, table)
    data += b"trailer << /Size %d /Root 1 0 R >>\n" % count
    path.write_bytes(data + b"startxref\n%d\n%%%%EOF\n" % start)
    return path


def lines(canvas: Canvas, x: float, y: float, texts: list[str], leading: float = 14) -> None:
    canvas.setFont("Helvetica", 11)
    for row, text in enumerate(texts):
        canvas.drawString(x, y - leading * row, text)
