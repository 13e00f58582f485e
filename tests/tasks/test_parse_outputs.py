"""Formats and figures of a folder of results: made of what is there, and no page parsed twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from sooner.documents import find_documents
from sooner.tasks.parse import Delivery, ParsedPage, ParsedRegion, ParseJob, ParseOutput
from sooner.tasks.parse.delivery import NAME
from tasks.drafting import EchoParser
from tasks.parse_jobs import SMALL, listing, records


class WithFigure(EchoParser):
    """A line of text, and a figure in the middle of the page."""

    def __call__(self, page: Any, draft: Any = None) -> ParsedPage:
        parsed = super().__call__(page, draft)
        figure = ParsedRegion(1, "Picture", "", (20.0, 20.0, 60.0, 40.0))
        return replace(parsed, regions=[*parsed.regions, figure])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    image = Image.new("RGB", (80, 60), "white")
    ImageDraw.Draw(image).rectangle((20, 20, 60, 40), fill="red")
    (tmp_path / "in").mkdir()
    image.save(tmp_path / "in" / "a b.png")
    return tmp_path / "in"


def run(source: Path, out: Path, *formats: str, **options: Any) -> list[int]:
    """Pages that had to be parsed."""
    parser = WithFigure()
    delivery = Delivery(out, formats, **options)
    output = ParseOutput(delivery, "s", SMALL)
    ParseJob(documents=find_documents([source]), output=output).run(lambda: parser)
    return parser.report


def test_figures_are_files_of_their_page(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(source, out, "md", "json", "html", figures=("Picture",)) == [1]
    figure = "a b.png/page-0001-figure-1.png"
    assert figure in listing(out)
    assert figure in records(out)["a b.png", 1]["files"]
    with Image.open(out / figure) as image:
        assert image.size == (48, 28)
        assert image.convert("RGB").getpixel((24, 14)) == (255, 0, 0)
    image_link = "![Figure](a%20b.png/page-0001-figure-1.png)"
    assert (out / "a b.png.md").read_text() == f"nothing drafted\n\n{image_link}\n"
    assert "](page-0001-figure-1.png)" in (out / "a b.png/page-0001.md").read_text()
    regions = json.loads((out / "a b.png.json").read_text())["pages"][0]["regions"]
    assert [region.get("picture") for region in regions] == [None, "page-0001-figure-1.png"]


def test_figures_and_formats_of_a_finished_folder_cost_no_model(
    source: Path, tmp_path: Path
) -> None:
    pytest.importorskip("docling_core")
    out = tmp_path / "out"
    assert run(source, out, "md") == [1]
    assert "figure" not in "".join(listing(out))
    assert run(source, out, "md", figures=("Picture",)) == []
    assert "figure-1.png" in (out / "a b.png.md").read_text()
    assert run(source, out, "md", "docling", figures=("Picture",)) == []
    assert "a b.png.docling.json" in listing(out)
    names = [name for name in listing(out) if name != NAME]
    before = {name: (out / name).stat().st_mtime_ns for name in names}
    assert run(source, out, "md", "docling", figures=("Picture",)) == []
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    (out / "a b.png/page-0001-figure-1.png").unlink()
    assert run(source, out, "md", figures=("Picture",)) == []
    assert (out / "a b.png/page-0001-figure-1.png").is_file()
    assert run(source, out, "md") == []
    assert (out / "a b.png.md").read_text() == "nothing drafted\n"
