"""Pages as a person would hold them: turned, with their forms filled in, and of any size."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from reportlab.lib.pagesizes import A6
from reportlab.pdfgen.canvas import Canvas

from sooner.documents import BrokenPage, Page, Resolution, find_documents, read_pages
from sooner.documents.drafters import TextLayer
from sooner.documents.inputs import HEIF

SENTENCES = [f"Sentence number {number} of the report is here." for number in range(1, 13)]
SMALL = Resolution(dpi=72)


def only(path: Path, resolution: Resolution = SMALL) -> Page:
    (page,) = read_pages(path, resolution=resolution)
    assert isinstance(page, Page)
    return page


def report(path: Path, angle: int, rotate: int = 0, stamp: bool = False) -> Path:
    """A page whose lines run at `angle` degrees counterclockwise, shown turned by `rotate`."""
    width, height = A6 if angle % 180 == 0 else A6[::-1]
    # reportlab takes the size that is shown.
    canvas = Canvas(str(path), pagesize=(height, width) if rotate % 180 else (width, height))
    canvas.setPageRotation(rotate)
    canvas.translate(width / 2, height / 2)
    canvas.rotate(angle)
    canvas.setFont("Helvetica", 10)
    for number, sentence in enumerate(SENTENCES):
        canvas.drawString(-A6[0] / 2 + 20, A6[1] / 2 - 40 - 14 * number, sentence)
    if stamp:
        canvas.rotate(90)
        canvas.drawString(-A6[1] / 2 + 20, A6[0] / 2 - 30, "arXiv: a stamp")
    canvas.save()
    return path


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_a_page_is_turned_as_its_rotation_says(tmp_path: Path, angle: int) -> None:
    page = only(report(tmp_path / "a.pdf", angle, angle, stamp=True))
    assert page.notes == ()
    assert page.width < page.height  # as the sheet is held to be read
    text = " ".join(TextLayer()(page).texts)
    assert " ".join(SENTENCES) in " ".join(text.split())
    ink = np.flatnonzero((page.picture < 128).all(axis=2).any(axis=1))
    assert ink[0] < page.height / 4  # lines begin at the top


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_text_that_runs_otherwise_is_left_to_ocr(tmp_path: Path, angle: int) -> None:
    draft = TextLayer()(only(report(tmp_path / "a.pdf", angle)))
    assert (draft.regions, draft.reason) == ([], "text layer does not run from left to right")


def test_values_of_form_fields_are_drawn(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=A6)
    canvas.acroForm.textfield(
        x=40, y=300, width=200, height=30, value="Ada Lovelace", borderWidth=0, fontSize=14
    )
    canvas.acroForm.checkbox(x=40, y=200, size=20, checked=True, borderWidth=0)
    canvas.drawString(40, 350, "a form")
    canvas.showPage()
    canvas.save()
    page = only(tmp_path / "a.pdf")
    top = page.height - 330
    field, box = page.picture[top : top + 30, 40:240], page.picture[-220:-200, 40:60]
    assert (field < 100).all(axis=2).sum() > 50
    assert (box < 100).all(axis=2).sum() > 10


def test_forms_that_pdfium_does_not_know_are_no_reason_to_speak(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = report(tmp_path / "a.pdf", 0)
    root = b"/Type /Catalog"
    assert path.read_bytes().count(root) == 1
    form = b"/AcroForm << /Fields [] /XFA [(a) 1 0 R] >> "
    path.write_bytes(path.read_bytes().replace(root, form + root))  # PDFium mends the offsets
    assert only(path).text is not None
    assert caplog.records == []


@pytest.mark.parametrize("padding", [b"\0" * 2_100, b"\n" * 50_000, b"\0\r\n " * 20_000])
def test_what_fills_a_file_up_does_not_cut_it_off(tmp_path: Path, padding: bytes) -> None:
    path = report(tmp_path / "a.pdf", 0)
    whole = path.read_bytes()
    path.write_bytes(whole + padding)
    assert only(path).notes == ()
    path.write_bytes(whole[: whole.rindex(b"startxref")] + padding)
    *_, cut = read_pages(path, resolution=SMALL)
    assert isinstance(cut, BrokenPage)
    assert "truncated" in cut.reason


@pytest.mark.parametrize(("size", "pixels"), [(6_000, 4_000), (14_400, 4_000), (1_000, 2_778)])
def test_posters_are_drawn_as_large_as_is_good(tmp_path: Path, size: int, pixels: int) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(size, size / 20))
    canvas.drawString(9, 9, "a plan")
    canvas.save()
    page = only(tmp_path / "a.pdf", Resolution())
    assert max(page.size) == pixels
    assert bool(page.notes) == (pixels == 4_000)


@pytest.mark.parametrize("suffix", [".heic", ".heif", ".avif", ".jp2", ".gif"])
def test_pictures_of_phones_and_cameras_are_documents(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"photo{suffix}"
    image = Image.new("RGB", (64, 48), "white")
    image.paste("black", (0, 0, 16, 48))
    if suffix in HEIF:
        pillow_heif = pytest.importorskip("pillow_heif")
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned clockwise
        pillow_heif.from_pillow(image).save(path, exif=exif.tobytes())
    else:
        image.save(path)
    (document,) = find_documents([tmp_path])
    assert document.place.name == path.name
    page = only(path)
    dark = page.picture.mean(axis=2) < 90
    if suffix in HEIF:
        assert page.size == (48, 64)
        assert dark[:14].all()
        assert not dark[20:].any()
    else:
        assert page.size == (64, 48)
        assert dark[:, :14].all()
        assert not dark[:, 20:].any()
    path.write_bytes(path.read_bytes()[:40])
    (broken,) = read_pages(path)
    assert isinstance(broken, BrokenPage)


def test_what_reads_photos_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "photo.heic").write_bytes(b"any")
    (broken,) = read_pages(tmp_path / "photo.heic")
    assert isinstance(broken, BrokenPage)
    assert broken.reason.endswith("pip install 'sooner[heic]'")
    tables = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = {name for name, packages in tables["optional-dependencies"].items()
              if "pillow-heif" in packages}  # fmt: skip
    assert extras == {"heic", "dev"}


@pytest.mark.parametrize(
    ("size", "suffix", "seen"),
    [((20_000, 400), ".png", (16_000, 320)), ((300, 17_000), ".jpg", (282, 16_000))],
)
def test_a_very_large_picture_is_made_smaller_with_a_note(
    tmp_path: Path, size: tuple[int, int], suffix: str, seen: tuple[int, int]
) -> None:
    image = Image.new("L", size, 255)
    image.paste(0, (0, 0, size[0], size[1] // 4))
    image.save(tmp_path / f"strip{suffix}")
    page = only(tmp_path / f"strip{suffix}", Resolution())
    assert page.size == seen
    assert page.native == size
    assert page.notes == (f"made smaller, {seen[0]} x {seen[1]} px, as it is very large",)
    assert page.picture[: seen[1] // 5].max() < 64
    assert page.picture[seen[1] // 3 :].min() > 192
    (broken,) = read_pages(tmp_path / f"strip{suffix}", resolution=Resolution(longest=18_000))
    assert isinstance(broken, BrokenPage)
    assert "more than 16000 px a side" in broken.reason


def test_an_error_of_a_page_breaks_that_page_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OverflowError("Python int too large")

    path = report(tmp_path / "a.pdf", 0)
    with monkeypatch.context() as patch:
        patch.setattr("sooner.documents.pdf.page_text", fail)
        page = only(path)
        assert page.text is None
        assert page.notes == ("its text layer can't be read (OverflowError: Python int too large)",)
    monkeypatch.setattr("sooner.documents.pdf.draw_page", fail)
    (broken,) = read_pages(path)
    assert isinstance(broken, BrokenPage)
    assert (broken.number, broken.reason) == (1, "is damaged (Python int too large)")


def test_an_error_of_a_picture_breaks_that_picture_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import struct

    def fail(*_: object) -> None:
        raise struct.error("unpack requires 4 bytes")

    path = tmp_path / "a.png"
    Image.new("RGB", (64, 48), "white").save(path)
    with monkeypatch.context() as patch:
        patch.setattr("sooner.documents.pages.as_rgb", fail)
        (broken,) = read_pages(path)
        assert isinstance(broken, BrokenPage)
        assert (broken.number, broken.reason) == (1, "is damaged (unpack requires 4 bytes)")
    monkeypatch.setattr(Image, "open", fail)
    (broken,) = read_pages(path)
    assert isinstance(broken, BrokenPage)
    assert broken.number == 0


def test_a_name_that_is_no_unicode_is_reported_in_a_line(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.pdf"))
    os.rename(report(tmp_path / "a.pdf", 0), path)
    pages = list(read_pages(path, resolution=SMALL))
    assert all(isinstance(page, BrokenPage | Page) for page in pages)
