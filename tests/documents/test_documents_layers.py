"""Layers of a page that are switched on and off."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from commands import Run, records, run
from documents import paper

__all__ = ["run"]


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
