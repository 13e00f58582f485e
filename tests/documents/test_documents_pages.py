"""Documents in: PDFs and pictures as pages, one after the other."""

from __future__ import annotations

import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sooner.documents import BrokenPage, Line, Page, PageText, Resolution, read_pages
from sooner.documents.page import check_size
from sooner.errors import SoonerError

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from documents import paper
from documents.pages import only


def broken(path: Path, **options: Any) -> BrokenPage:
    (page,) = read_pages(path, **options)
    assert isinstance(page, BrokenPage)
    assert "\n" not in str(page.error)
    return page


def test_a_pdf_page_has_picture_size_and_words(tmp_path: Path) -> None:
    path = paper.report(tmp_path / "report.pdf")
    page = only(path, resolution=Resolution(dpi=144))
    assert (page.number, page.of, page.source) == (1, 1, path)
    assert page.picture.dtype == np.uint8
    assert page.picture.shape == (1684, 1191, 3)
    assert page.text is not None
    assert not page.text.problem
    assert page.text.lines[0].text == "Journal of Fruit"


def test_the_longest_side_can_be_set(tmp_path: Path) -> None:
    path = paper.report(tmp_path / "report.pdf")
    assert max(only(path, resolution=Resolution(longest=800)).size) == 800


def test_words_are_where_their_ink_is(tmp_path: Path) -> None:
    for path in (paper.report(tmp_path / "a.pdf"), paper.turned(tmp_path / "b.pdf")):
        page = only(path)
        assert page.text is not None
        ink = page.picture.min(axis=2) < 128
        seen = np.zeros_like(ink)
        for word in page.text.lines:
            x0, y0, x1, y1 = (round(edge) for edge in word.bbox)
            assert ink[y0:y1, x0:x1].any(), word
            seen[y0:y1, x0:x1] = True
        assert (ink & seen).sum() > 0.99 * ink.sum()


def test_a_turned_page_is_upright(tmp_path: Path) -> None:
    page = only(paper.turned(tmp_path / "turned.pdf"))
    assert page.height > page.width
    assert page.text is not None
    assert page.text.lines[0].text.split() == ["Upright", "after", "all"]
    left, top, right, bottom = page.text.lines[0].bbox
    assert right - left > bottom - top


def test_a_word_divided_at_the_end_of_a_line_stays_in_two(tmp_path: Path) -> None:
    page = only(paper.report(tmp_path / "report.pdf"))
    assert page.text is not None
    words = " ".join(line.text for line in page.text.lines).split()
    assert words[words.index("hyphen-") + 1] == "ated,"


def test_a_scan_has_no_text_layer_and_a_stamp_is_none(tmp_path: Path) -> None:
    report = paper.report(tmp_path / "report.pdf")
    bare = only(paper.scan(tmp_path / "bare.pdf", report, dpi=100))
    assert bare.text is not None
    assert bare.text.problem == "no text layer"
    stamped = only(paper.scan(tmp_path / "stamped.pdf", report, dpi=100, note="Scanned by X"))
    assert stamped.text is not None
    assert [line.text for line in stamped.text.lines] == ["Scanned by X"]
    assert "covers" in stamped.text.problem


def test_garbage_is_no_good_text() -> None:
    lines = [Line("\ufffd\ue001", (0, 0, 9, 9), 9.0)]
    assert "garbage" in PageText(lines, garbled=1.0, coverage=1.0).problem
    assert not PageText(lines, garbled=0.0, coverage=1.0).problem


def test_pages_are_chosen_by_number(tmp_path: Path) -> None:
    path = paper.page_numbers(tmp_path / "many.pdf", 8)
    pages = list(read_pages(path, "2-3,7", Resolution(longest=200)))
    assert [page.number for page in pages] == [2, 3, 7]
    for page in pages:
        assert isinstance(page, Page)
        assert page.text is not None
        assert str(page.number) in page.text.lines[0].text.split()


def test_pages_that_a_document_lacks_are_reported_and_the_rest_come(tmp_path: Path) -> None:
    path = paper.page_numbers(tmp_path / "two.pdf", 2)
    *good, missing = read_pages(path, "1-4,3-4", Resolution(longest=100))
    assert [page.number for page in good] == [1, 2]
    assert isinstance(missing, BrokenPage)
    assert missing.reason == "has 2 pages, not page 3-4"
    assert [page.number for page in read_pages(path, "1-4", Resolution(longest=100))] == [1, 2]


def test_nothing_of_a_page_stays_in_memory(tmp_path: Path) -> None:
    path = paper.page_numbers(tmp_path / "many.pdf", 6)
    before: list[Any] = []
    for page in read_pages(path, resolution=Resolution(longest=300)):
        assert isinstance(page, Page)
        assert [reference() for reference in before if reference() is not None] == []
        before.append(weakref.ref(page.picture))
        del page


def test_documents_that_cannot_be_opened_are_reported_in_a_line(tmp_path: Path) -> None:
    good = paper.page_numbers(tmp_path / "good.pdf", 2).read_bytes()
    files = {
        "cut.pdf": (good[: len(good) // 3], "truncated"),
        "none.pdf": (b"", "empty"),
        "other.pdf": (b"just a text, not what its name says", "no PDF"),
    }
    for name, (data, reason) in files.items():
        (tmp_path / name).write_bytes(data)
        assert reason in broken(tmp_path / name).reason
    assert "damaged" in broken(paper.without_pages(tmp_path / "zero.pdf")).reason
    assert "not exist" in broken(tmp_path / "nowhere.pdf").reason


def test_an_encrypted_pdf_wants_its_password(tmp_path: Path) -> None:
    path = paper.page_numbers(tmp_path / "secret.pdf", 1, encrypt="open sesame")
    assert broken(path).reason == "is encrypted; give its password (--password)"
    assert "wrong" in broken(path, password="open barley").reason
    assert only(path, password="open sesame").text is not None


def test_a_page_of_a_silly_size_is_broken_and_the_next_page_comes(tmp_path: Path) -> None:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "sizes.pdf"))
    for size in ((20_000, 20_000), (1, 1), (200, 300)):
        canvas.setPageSize(size)
        canvas.drawString(1, 1, "x")
        canvas.showPage()
    canvas.save()
    fitted = Resolution(within=(512, 640))
    large, small, good = read_pages(tmp_path / "sizes.pdf", resolution=fitted)
    assert (large.size, good.size) == ((512, 512), (427, 640))
    assert "4 x 4 px, too small" in small.reason
    resolution = Resolution(longest=20_000)
    large, _, _ = read_pages(tmp_path / "sizes.pdf", resolution=resolution)
    assert isinstance(large, BrokenPage)
    assert "20000 x 20000 px, more than" in large.reason
    large, small, good = read_pages(tmp_path / "sizes.pdf", resolution=Resolution(dpi=72))
    assert isinstance(large, Page)
    assert (large.size, large.notes) == ((4000, 4000), ("drawn at 14 dpi, as it is very large",))
    assert isinstance(small, BrokenPage)
    assert "too small" in small.reason
    assert isinstance(good, Page)
    assert good.size == (200, 300)


def test_a_damaged_page_does_not_stop_the_rest(tmp_path: Path) -> None:
    data = paper.page_numbers(tmp_path / "good.pdf", 3).read_bytes()
    kids = re.search(rb"/Kids \[ (\d) 0 R (\d) 0 R (\d) 0 R \]", data)
    assert kids
    lost = data[: kids.start(2)] + b"0" + data[kids.end(2) :]  # there is no object 0
    (tmp_path / "worse.pdf").write_bytes(lost)
    first, two, three = read_pages(tmp_path / "worse.pdf", resolution=Resolution(longest=200))
    assert isinstance(first, Page)
    assert isinstance(two, BrokenPage)
    assert (two.number, "damaged" in two.reason) == (2, True)
    assert isinstance(three, Page)
    # pdfplumber numbers the rest in another way, so no page gets the text of another.
    assert (first.text, three.text) == (None, None)
    assert "2 of 3 pages found" in three.notes[0]


def test_what_can_be_saved_of_a_truncated_pdf_comes_with_a_warning(tmp_path: Path) -> None:
    data = paper.page_numbers(tmp_path / "good.pdf", 2).read_bytes()
    (tmp_path / "cut.pdf").write_bytes(data[: data.index(b"startxref")])
    *pages, last = read_pages(tmp_path / "cut.pdf", resolution=Resolution(longest=200))
    assert [page.number for page in pages] == [1, 2]
    assert isinstance(last, BrokenPage)
    assert [page.notes for page in pages] == [(), (f"the file {last.reason}",)]
    assert "truncated; 2 pages were found" in last.reason


@pytest.mark.parametrize("name", ["turned.png", "turned.tif"])
def test_a_picture_is_turned_by_its_orientation(tmp_path: Path, name: str) -> None:
    image = Image.new("RGB", (60, 40), "white")
    image.paste("red", (0, 0, 20, 40))  # the left third, which is the top third once turned
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / name, exif=exif)
    page = only(tmp_path / name)
    assert page.size == (40, 60)
    assert page.native == (40.0, 60.0)
    assert page.picture[5, 20].tolist() == [255, 0, 0]
    assert page.picture[50, 20].tolist() == [255, 255, 255]


def test_pictures_of_all_modes_become_rgb(tmp_path: Path) -> None:
    for mode in ("1", "L", "P", "LA", "RGBA", "CMYK", "I;16"):
        path = tmp_path / ("x.tif" if mode == "CMYK" else "x.png")
        Image.new(mode, (30, 20)).save(path)
        page = only(path)
        assert page.picture.shape == (20, 30, 3), mode
        assert page.picture.dtype == np.uint8
        clear = mode in ("LA", "RGBA")  # nothing there: paper is white
        assert (page.picture == 255).all() == (clear or mode == "CMYK"), mode


def test_sixteen_bits_are_brought_down_to_eight(tmp_path: Path) -> None:
    grey = np.full((20, 20), 32768, dtype=np.uint16)
    Image.fromarray(grey).save(tmp_path / "deep.png")
    assert int(only(tmp_path / "deep.png").picture[0, 0, 0]) in (127, 128)


def test_resolution_shrinks_a_picture_and_never_enlarges_it(tmp_path: Path) -> None:
    Image.new("L", (600, 900)).save(tmp_path / "fine.png", dpi=(300, 300))
    assert only(tmp_path / "fine.png", resolution=Resolution(dpi=100)).size == (200, 300)
    assert only(tmp_path / "fine.png", resolution=Resolution(dpi=600)).size == (600, 900)
    assert only(tmp_path / "fine.png", resolution=Resolution(longest=450)).size == (300, 450)
    Image.new("L", (600, 900)).save(tmp_path / "odd.png", dpi=(1, 1))
    odd = only(tmp_path / "odd.png", resolution=Resolution(dpi=100))
    assert odd.size == (600, 900)


@given(st.integers(200, 40_000), st.integers(200, 40_000))
def test_a_picture_of_any_size_is_made_small_enough(width: int, height: int) -> None:
    scale = Resolution().of_picture(width, height, dpi=0)
    assert scale <= 1
    check_size(width, height, scale, finest=1.0)
    with pytest.raises(SoonerError, match="more than 16000 px a side or 100 million in all"):
        check_size(width, height, 200.0, finest=1.0)


def test_pages_may_be_fit_into_the_size_that_a_model_knows(tmp_path: Path) -> None:
    fitted = Resolution(within=(512, 640))
    for name, size, expected in (
        ("same.png", (512, 640), (512, 640)),
        ("large.png", (1024, 1280), (512, 640)),
        ("small.png", (256, 320), (512, 640)),
        ("wide.png", (640, 512), (512, 410)),
        ("strip.png", (512, 32), (512, 32)),
    ):
        Image.new("RGB", size, "white").save(tmp_path / name)
        (page,) = read_pages(tmp_path / name, resolution=fitted)
        assert page.size == expected
    with pytest.raises(SoonerError, match="within is"):
        Resolution(within=(512, 0))


def test_a_tiff_has_pages(tmp_path: Path) -> None:
    shades = [Image.new("L", (40, 30), 50 * number) for number in range(1, 5)]
    shades[0].save(tmp_path / "pages.tif", save_all=True, append_images=shades[1:])
    pages = list(read_pages(tmp_path / "pages.tif", "2-"))
    assert [page.number for page in pages] == [2, 3, 4]
    for page in pages:
        assert isinstance(page, Page)
        assert page.picture[0, 0, 0] == 50 * page.number
        assert page.of == 4
    data = (tmp_path / "pages.tif").read_bytes()
    (tmp_path / "cut.tif").write_bytes(data[: len(data) // 2 + 20])
    *pages, last = read_pages(tmp_path / "cut.tif")
    assert [page.number for page in pages] == [1, 2]
    assert "truncated; 2 pages were found" in pages[1].notes[0]
    assert "truncated; 2 pages were found" in last.reason


def test_bad_pictures_are_reported_in_a_line(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    for name in ("cut.png", "cut.jpg"):
        Image.fromarray(noise).save(tmp_path / name)
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        assert "truncated" in broken(tmp_path / name).reason
    (tmp_path / "text.png").write_text("no picture")
    assert "no picture" in broken(tmp_path / "text.png").reason
    Image.new("1", (20_000, 20_000)).save(tmp_path / "large.png")
    assert "too large" in broken(tmp_path / "large.png").reason
    Image.new("L", (1, 1)).save(tmp_path / "small.png")
    assert "too small" in broken(tmp_path / "small.png").reason
    assert "does not exist" in broken(tmp_path / "nowhere.png").reason


def test_a_broken_range_or_resolution_is_refused_at_once(tmp_path: Path) -> None:
    path = paper.page_numbers(tmp_path / "one.pdf", 1)
    with pytest.raises(SoonerError, match="not understood"):
        read_pages(path, "one")
    with pytest.raises(SoonerError, match="above 0"):
        Resolution(dpi=0)
    with pytest.raises(SoonerError, match="above 0"):
        Resolution(longest=-5)


def test_a_crop_has_a_margin_and_ends_at_the_page(tmp_path: Path) -> None:
    picture = np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3)
    page = Page(tmp_path / "x.png", 1, picture)
    assert page.crop((10, 5, 15, 8), margin=2).shape == (7, 9, 3)
    assert page.crop((0, 0, 5, 5), margin=4).shape == (9, 9, 3)
    with pytest.raises(SoonerError, match="not on page 1"):
        page.crop((40, 40, 50, 50))
