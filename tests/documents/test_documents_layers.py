"""What lies upon or under a page's text: switched-off layers, junk upon scans, text in pictures."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from commands import Run, records, run
from documents import paper
from documents.reading import words

__all__ = ["run"]

needs_ocr = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None, reason="rapidocr is not installed"
)


def layered(path: Path, state: str) -> Path:
    """A page with one line of its own, and one in a layer that is `ON` or `OFF` at first."""
    content = (
        b"BT /F1 12 Tf 72 700 Td (This line is always on the page.) Tj ET\n"
        b"/OC /L1 BDC BT /F1 12 Tf 72 650 Td (This one is in a layer.) Tj ET EMC\n"
    )
    return paper.of_objects(
        path,
        b"<< /Type /Catalog /Pages 2 0 R /OCProperties << /OCGs [6 0 R]"
        b" /D << /Order [6 0 R] /%s [6 0 R] >> >> >>" % state.encode(),
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources"
        b" << /Font << /F1 5 0 R >> /Properties << /L1 6 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%sendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /OCG /Name (Draft) >>",
    )


@pytest.mark.parametrize(("state", "count"), [("ON", 1), ("OFF", 0)])
def test_a_layer_that_is_switched_off_is_left_out(
    run: Run, tmp_path: Path, state: str, count: int
) -> None:
    (tmp_path / "in").mkdir()
    layered(tmp_path / "in" / "a.pdf", state)
    assert run("parse", tmp_path / "in", "-o", tmp_path / "out").code == 0
    text = (tmp_path / "out" / "a.pdf.md").read_text()
    assert "This line is always on the page." in text
    assert text.count("This one is in a layer.") == count
    (record,) = records(tmp_path / "out")
    assert ("hidden words were left out" in str(record["notes"])) == (not count)


@needs_ocr
def test_text_in_a_large_picture_is_read_where_it_stands(run: Run, tmp_path: Path) -> None:
    image = Image.new("RGB", (1000, 300), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((5, 5, 994, 294), outline="black", width=4)
    draw.text((60, 110), "Valve pressure 340 kPa", "black", ImageFont.load_default(72))
    (tmp_path / "in").mkdir()
    canvas = Canvas(str(tmp_path / "in" / "a.pdf"), pagesize=(paper.WIDTH, paper.HEIGHT))
    paper.lines(canvas, 72, 700, paper.PROSE)
    canvas.drawImage(ImageReader(image), 72, 450, 400, 120)
    paper.lines(canvas, 72, 300, ["And this is what stands below the picture."])
    canvas.save()
    assert run("parse", tmp_path / "in", "-o", tmp_path / "out").code == 0
    (record,) = records(tmp_path / "out")
    assert (record["drafter"], record["notes"]) == ("text-layer+ocr", [])
    actual = words((tmp_path / "out" / "a.pdf.md").read_text())
    expected = ["book.", "Valve", "pressure", "340", "kPa", "And"]
    assert actual[actual.index("book.") :][:6] == expected
    alone = run("parse", tmp_path / "in", "-o", tmp_path / "alone", "--drafter", "text-layer")
    assert alone.code == 0
    assert "text in a picture, if any, was not read" in str(records(tmp_path / "alone"))
