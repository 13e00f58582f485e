"""Form fields are part of a page's text and of its picture."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from reportlab.pdfgen.canvas import Canvas

from documents.pages import only
from documents.reading import markdown

FORM = Path(__file__).parent / "data" / "form.pdf"


def test_values_of_fields_are_text_where_they_are_shown(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "form.pdf"))
    canvas.drawString(72, 700, "Name:")
    canvas.acroForm.textfield(name="name", value="Ada Lovelace", x=120, y=694, width=200, height=20)
    canvas.drawString(72, 560, "Code:")
    canvas.acroForm.textfield(name="code", value="secret", x=120, y=554, annotationFlags="hidden")
    canvas.save()
    text = markdown(only(tmp_path / "form.pdf"))
    assert sorted(text.split()) == ["Ada", "Code:", "Lovelace", "Name:"]


def test_values_are_drawn_for_the_model_too() -> None:
    page = only(FORM)
    assert page.text is not None
    assert not page.text.problem
    label, value = page.text.lines
    assert (label.text, value.text) == ("Name:", "Filled In Value")
    x0, y0, x1, y1 = (round(edge) for edge in value.bbox)
    picture = page.picture[y0:y1, x0:x1]
    assert (picture.min(axis=2) < 128).sum() > 200
