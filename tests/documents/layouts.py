"""PDFs in several layouts, drawn for the tests as typesetting programs draw them."""

from __future__ import annotations

from pathlib import Path

from reportlab.lib.pagesizes import A4, landscape
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

TEXT = (
    "the quick brown fox jumps over a lazy dog while seven wizards brew some strong coffee near "
    "an old stone bridge that nobody crosses after dark because travellers tell odd stories"
)
WORDS = TEXT.split()
LATE = "link to Launchpad bug a short form is preferred"


def prose(lines: int, count: int = 9, start: int = 0) -> list[str]:
    """Lines of a text in which no two lines begin alike."""
    words = [f"{WORDS[n % len(WORDS)]}{start + n}" for n in range(lines * count)]
    return [" ".join(words[n * count : (n + 1) * count]) for n in range(lines)]


def by_places(
    canvas: Canvas, x: float, y: float, text: str, font: str, size: float, gap: float = 0.22
) -> None:
    """A line as TeX writes it: each word at its place, and no blank anywhere."""
    canvas.setFont(font, size)
    for word in text.split():
        canvas.drawString(x, y, word)
        x += stringWidth(word, font, size) + gap * size


def manual(path: Path) -> Path:
    """A page of a manual: title, headings by size and by weight alone, code, a justified text."""
    canvas = Canvas(str(path), pagesize=A4)
    canvas.setFont("Helvetica-Bold", 20)
    canvas.drawString(72, 760, "A Manual of Wizardry")
    for n, line in enumerate(prose(4)):
        by_places(canvas, 72, 720 - 13 * n, line, "Times-Roman", 10)
    canvas.setFont("Times-Bold", 10)
    canvas.drawString(72, 650, "Options of the cauldron")
    for n, line in enumerate(prose(3, start=100)):
        by_places(canvas, 72, 634 - 13 * n, line, "Times-Roman", 10)
    canvas.setFont("Courier", 9)
    for n, line in enumerate(["def brew(cup):", "    if cup:", "        stir(cup)   # twice"]):
        canvas.drawString(90, 570 - 11 * n, line)
    for n, line in enumerate(prose(2, start=200)):
        by_places(canvas, 72, 510 - 13 * n, line, "Times-Roman", 10)
    canvas.setFont("Courier", 9)
    canvas.drawString(90, 470, "brew --strong")
    canvas.save()
    return path


CODE = "```\ndef brew(cup):\n    if cup:\n        stir(cup)   # twice\n```"


def three_columns(path: Path) -> tuple[Path, list[str]]:
    """A card in three columns below one heading; the file lists rows. And its lines in order."""
    canvas = Canvas(str(path), pagesize=landscape(A4))
    canvas.setFont("Helvetica-Bold", 18)
    canvas.drawString(50, 550, "A Card in Three Columns")
    columns = [prose(12, 5, start) for start in (0, 100, 200)]
    canvas.setFont("Times-Roman", 10)
    for row in range(12):
        for x, column in zip((50, 310, 570), columns, strict=True):
            canvas.drawString(x, 510 - 13 * row, column[row])
    canvas.save()
    return path, [line for column in columns for line in column]


def italic_last(path: Path) -> Path:
    """A line whose italic words are written after all others, as programs that sort by font do."""
    canvas = Canvas(str(path), pagesize=A4)
    words = LATE.split()
    places, x = [], 72.0
    for word in words:
        places.append(x)
        x += stringWidth(word, "Times-Roman", 11) + 2.8
    for is_late in (False, True):
        canvas.setFont("Times-Italic" if is_late else "Times-Roman", 11)
        for word, place in zip(words, places, strict=True):
            if (word in ("to", "a", "is")) == is_late:
                canvas.drawString(place, 700, word)
    canvas.save()
    return path


def tight(path: Path) -> Path:
    """A heading whose letters overlap, so that blanks between words are hardly wider than none."""
    canvas = Canvas(str(path), pagesize=A4)
    text = canvas.beginText(72, 700)
    text.setFont("Times-Roman", 12)
    text.setCharSpace(-1.6)
    text.textOut("CHAPTER ONE OVERVIEW OF THE BREW")
    canvas.drawText(text)
    canvas.save()
    return path
