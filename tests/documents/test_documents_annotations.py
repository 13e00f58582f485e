"""Form fields, check boxes and notes on a page are part of its text and of its picture."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from reportlab.pdfbase.pdfdoc import PDFArray, PDFDictionary, PDFName, PDFString
from reportlab.pdfgen.canvas import Canvas

from documents.pages import only
from documents.reading import markdown

FORM = Path(__file__).parent / "data" / "form.pdf"


def test_values_and_check_marks_stand_next_to_their_labels(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "form.pdf"))
    form = canvas.acroForm
    canvas.drawString(72, 700, "Name:")
    form.textfield(name="name", value="Ada Lovelace", x=120, y=694, width=200, height=20)
    for number, (label, is_checked) in enumerate([("married", True), ("retired", False)]):
        form.checkbox(name=label, checked=is_checked, x=72, y=650 - 30 * number, size=14)
        canvas.drawString(92, 653 - 30 * number, label)
    canvas.drawString(72, 560, "Code:")
    form.textfield(name="code", value="secret", x=120, y=554, fieldFlags="password")
    canvas.save()
    text = markdown(only(tmp_path / "form.pdf"))
    assert [line for line in text.splitlines() if line] == [
        "Name: Ada Lovelace", "[x] married", "[ ] retired", "Code:",
    ]  # fmt: skip


def test_values_are_drawn_for_the_model_too() -> None:
    page = only(FORM)
    assert page.text is not None
    assert page.text.good
    (line,) = page.text.lines
    assert line.text == "Name: Filled In Value"
    x0, y0, x1, y1 = (round(edge) for edge in line.bbox)
    value = page.picture[y0:y1, (x0 + x1) // 4 : x1]
    assert (value.min(axis=2) < 128).sum() > 200


def test_a_note_in_free_text_is_read(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "note.pdf"))
    canvas.drawString(72, 700, "A sentence of the page.")
    note = {
        "Type": PDFName("Annot"), "Subtype": PDFName("FreeText"), "F": 4,
        "Rect": PDFArray([72, 600, 300, 630]), "Contents": PDFString("Check this\nonce more"),
        "DA": PDFString("/Helv 10 Tf 0 g"),
    }  # fmt: skip
    canvas._addAnnotation(PDFDictionary(note))
    hidden = {**note, "F": 2, "Contents": PDFString("not shown")}
    canvas._addAnnotation(PDFDictionary(hidden))
    canvas.save()
    text = markdown(only(tmp_path / "note.pdf"))
    assert text == "A sentence of the page.\n\nCheck this once more\n"
