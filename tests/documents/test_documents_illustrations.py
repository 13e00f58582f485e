"""Pictures of a PDF's page as regions: whole, where they stand, and no backgrounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from reportlab.lib.pagesizes import A4
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from documents.pages import drafted
from documents.paper import HEIGHT, LEFT, PROSE, RIGHT, lines
from sooner.documents import Resolution, draft_texts, to_markdown
from sooner.documents.page import Line
from sooner.documents.pdf_text import illustrations

RED = ImageReader(Image.fromarray(np.full((40, 60, 3), (255, 0, 0), np.uint8)))


def test_a_picture_stands_between_the_texts_around_it(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    canvas = Canvas(str(path), pagesize=A4)
    lines(canvas, 72, 700, PROSE)
    canvas.drawImage(RED, 100, 400, 200, 160)
    canvas.drawImage(RED, 500, 800, 8, 8)  # an icon
    lines(canvas, 72, 300, PROSE)
    canvas.save()
    draft = drafted(path, resolution=Resolution(dpi=72))
    assert [region.label for region in draft.regions] == ["Text", "Picture", "Text"]
    assert [region.order for region in draft.regions] == [0, 1, 2]
    assert draft.regions[1].bbox == pytest.approx((100, HEIGHT - 560, 300, HEIGHT - 400), abs=2)
    assert len(draft_texts(draft)) == 2  # none of a picture
    assert to_markdown(draft.regions).count("This paragraph") == 2


def test_pictures_change_nothing_of_the_text_s_order(tmp_path: Path) -> None:
    """Columns are found without them; one in the left column comes before what is below it."""
    path = tmp_path / "a.pdf"
    canvas = Canvas(str(path), pagesize=A4)
    lines(canvas, 72, 700, LEFT)
    lines(canvas, 72, 450, LEFT)
    lines(canvas, 320, 700, RIGHT)
    before = len(LEFT)
    canvas.drawImage(RED, 80, 500, 150, 120)
    canvas.save()
    draft = drafted(path, resolution=Resolution(dpi=72))
    texts = [region for region in draft.regions if region.drafts]
    (place,) = [n for n, region in enumerate(draft.regions) if region.label == "Picture"]
    assert texts[0].drafts[0].count("\n") == before - 1
    assert place == 1


def test_what_is_no_illustration() -> None:
    size = (600, 800)
    words = [Line("word", (10.0 * n, 50.0, 10.0 * n + 8, 60.0), 10.0) for n in range(40)]
    assert illustrations([(0, 0, 600, 800)], [], size) == []  # a scan
    assert illustrations([(0, 40, 500, 300)], words, size) == []  # behind the text
    assert illustrations([(0, 0, 200, 10)], [], size) == []  # a rule
    assert illustrations([(-50, 100, 300, 300)], words, size) == [(0, 100, 300, 300)]
