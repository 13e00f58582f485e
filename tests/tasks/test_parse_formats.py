"""Files for other programs: read back by docling-core and json, and judged by content."""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sooner.documents import Page
from sooner.errors import SoonerError
from sooner.tasks.parse.formats import FORMATS, check_formats, figures, render_document, render_page
from sooner.tasks.parse.result import ParsedPage
from tasks.pages_of import BOTTOM, HEIGHT, INFO, MIDDLE, TOP, WIDTH, page

TABLE = "<table><tr><th>Name</th><th>Born</th></tr><tr><td>Ann</td><td>1901</td></tr></table>"
MERGED = (
    "<table><tr><th rowspan='2'>Name</th><th colspan='2'>Of</th></tr>"
    "<tr><th>Birth</th><th>Death</th></tr><tr><td>Ann</td><td>1901</td><td>1999</td></tr></table>"
)
BEGUN = "The members of the team agreed that all of the work should be"
REST = "done by the end of the following year."


@pytest.fixture
def pages() -> list[ParsedPage]:
    """Two pages with one of everything; a paragraph goes on from the first to the second."""
    return [
        page(
            1,
            ("Page-header", "A Paper", (50, 10, 550, 30)),
            ("Title", "# On Fruit", (50, 40, 550, 60)),
            ("Section-header", "## 1 What", (50, 70, 550, 90)),
            ("List-item", "- apples\n- pears", (50, 100, 550, 130)),
            ("List-item", "3. nuts", (50, 130, 550, 150)),
            ("Formula", "$$\na < b\n$$", (50, 150, 550, 170)),
            ("Table", TABLE, (50, 180, 550, 250)),
            ("Caption", "Table 1: Names", (50, 250, 550, 270)),
            ("Picture", "", MIDDLE),
            ("Caption", "Figure 1: Fruit", (50, 410, 550, 430)),
            ("Text", "```\nx = 1\n```", (50, 440, 550, 460)),
            ("Text", BEGUN, BOTTOM),
            ("Footnote", "1 By hand.", (50, 740, 550, 760)),
            ("Page-footer", "1", (290, 780, 310, 795)),
        ),
        page(2, ("Text", REST, TOP), ("Text", "No box.", None)),
    ]


def rendered(format_: str, pages: list[ParsedPage], **info: Any) -> bytes:
    return b"".join(render_document(format_, pages, {**INFO, **info}))


def docling(pages: list[ParsedPage], **info: Any) -> Any:
    core = pytest.importorskip("docling_core.types.doc")
    return core.DoclingDocument.model_validate_json(rendered("docling", pages, **info))


def test_docling_reads_everything(pages: list[ParsedPage]) -> None:
    made = docling(pages)
    assert made.name == "a paper"
    assert (made.origin.filename, made.origin.mimetype) == ("a paper.pdf", "application/pdf")
    assert {number: (element.size.width, element.size.height) for number, element in
    made.pages.items()} == {
        1: (WIDTH, HEIGHT), 2: (WIDTH, HEIGHT),
    }  # fmt: skip
    body = [(str(item.label.value), getattr(item, "text", "")) for item, _ in made.iterate_items()]
    assert body == [
        ("title", "On Fruit"),
        ("section_header", "1 What"),
        ("list_item", "apples"),
        ("list_item", "pears"),
        ("list_item", "nuts"),
        ("formula", "a < b"),
        ("table", ""),
        ("caption", "Table 1: Names"),
        ("picture", ""),
        ("caption", "Figure 1: Fruit"),
        ("code", "x = 1"),
        ("text", f"{BEGUN} {REST}"),
        ("footnote", "1 By hand."),
        ("text", "No box."),
    ]
    furniture = [item.text for item in made.texts if item.content_layer.value == "furniture"]
    assert furniture == ["A Paper", "1"]
    assert made.tables[0].caption_text(made) == "Table 1: Names"
    assert made.pictures[0].caption_text(made) == "Figure 1: Fruit"
    assert [element.marker for element in made.texts if element.label.value == "list_item"] == [
        "-",
        "-",
        "3.",
    ]


def test_html_shows_everything(pages: list[ParsedPage]) -> None:
    pytest.importorskip("docling_core")
    named = figures.named(pages[0], ("Picture",))
    raised = page(3, ("Text", "10<sup>2</sup> < 3", MIDDLE))
    text = rendered("html", [named, pages[1], raised]).decode()
    assert "default-src 'none'" in text
    assert "<title>sub/a paper.pdf</title>" in text
    assert '<img src="a%20paper.pdf/page-0001-figure-1.png">' in text
    parts = [
        "A Paper", "<h1>On Fruit</h1>", "<h2>1 What</h2>", "apples</li>", "<math", "<th>Name</th>",
        "<code>x = 1</code>", f"<p>{BEGUN} {REST}</p>", "No box.", "10<sup>2</sup> &lt; 3",
    ]  # fmt: skip
    places = [text.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)


def test_docling_tables_keep_their_spans() -> None:
    (table,) = docling([page(1, ("Table", MERGED, MIDDLE))]).tables
    assert (table.data.num_rows, table.data.num_cols) == (3, 3)
    cells = {
        cell.text: (cell.start_row_offset_idx, cell.start_col_offset_idx, cell.row_span,
                    cell.col_span, cell.column_header)
        for cell in table.data.table_cells
    }  # fmt: skip
    assert cells["Name"] == (0, 0, 2, 1, True)
    assert cells["Of"] == (0, 1, 1, 2, True)
    assert cells["Death"] == (1, 2, 1, 1, True)
    assert cells["1999"] == (2, 2, 1, 1, False)
    assert table.export_to_dataframe(None).values.tolist() == [["Ann", "1901", "1999"]]
    low = "<table><tr><td rowspan='9'>a</td><td>b</td></tr></table>"
    (table,) = docling([page(1, ("Table", low, MIDDLE))]).tables
    assert table.data.grid[0][0].row_span == 1


def picture() -> Page:
    """Black, but for a red picture in the middle."""
    drawn = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    x0, y0, x1, y1 = map(int, MIDDLE)
    drawn[y0:y1, x0:x1] = (255, 0, 0)
    return Page(Path("a paper.pdf"), 1, drawn)


def test_figures_are_cut_out_and_named(pages: list[ParsedPage]) -> None:
    named = figures.named(pages[0], ("Picture", "Table"))
    crops = figures.crops(picture(), named)
    assert list(crops) == ["page-0001-table-1.png", "page-0001-figure-1.png"]
    with Image.open(io.BytesIO(crops["page-0001-figure-1.png"])) as image:
        assert image.size == (508, 108)  # a margin of 4 around 500 x 100
        assert image.getpixel((254, 54)) == (255, 0, 0)
        assert image.getpixel((0, 0)) == (0, 0, 0)
    assert figures.crops(picture(), figures.named(pages[0], ())) == {}
    tiny = page(
        1, ("Picture", "", (0, 0, 3, 300)), ("Picture", "", None), ("Picture", "", (0, 0, 9, 900))
    )
    assert list(figures.crops(picture(), figures.named(tiny, ("Picture",)))) == [
        "page-0001-figure-1.png"
    ]


def test_json_tells_headers_and_footers_apart(pages: list[ParsedPage]) -> None:
    content = json.loads(render_page("json", pages[0]))
    assert (content["headers"], content["footers"]) == (["A Paper"], ["1"])
    assert content["regions"][0]["text"] == "A Paper"
    whole = json.loads(rendered("json", pages))
    assert [len(entry["regions"]) for entry in whole["pages"]] == [14, 2]  # nothing is joined


@pytest.mark.parametrize("format_", FORMATS)
def test_writing_twice_gives_the_same_bytes(format_: str, pages: list[ParsedPage]) -> None:
    if FORMATS[format_].needs:
        pytest.importorskip(FORMATS[format_].needs)
    assert rendered(format_, pages) == rendered(format_, pages) != b""


def test_unknown_formats_and_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_formats("md, DOCLING,md") == ("md", "docling")
    with pytest.raises(SoonerError, match="did you mean 'docling'"):
        check_formats("doclin")
    for text in ("", "md,,json", "md,"):
        with pytest.raises(SoonerError, match=f"format '{text}' has an empty name; write it as"):
            check_formats(text)
    with pytest.raises(SoonerError, match="did you mean 'picture'"):
        figures.check_figures("pictures")
    assert figures.check_figures("picture,formula") == ("Picture", "Formula")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SoonerError, match=r"pip install 'sooner\[docling\]'"):
        check_formats("docling")
