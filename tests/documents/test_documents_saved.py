"""Drafts out of files that other programs saved, each on a small file of its format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sooner.documents import Page, PageDraft
from sooner.documents.drafters import PlainText, SavedJson
from sooner.errors import SoonerError


def page(name: str = "paper.pdf", number: int = 1, of: int = 2) -> Page:
    """A page of 100 x 200 points, drawn at 144 dpi if it is of a PDF."""
    scale = 2 if name.endswith(".pdf") else 1
    picture = np.zeros((200 * scale, 100 * scale, 3), dtype=np.uint8)
    return Page(Path(name), number, picture, native=(100.0, 200.0), of=of)


def save(path: Path, data: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def output(draft: PageDraft) -> list[tuple[str, tuple[float, ...] | None, list[str]]]:
    assert [region.order for region in draft.regions] == list(range(len(draft.regions)))
    return [
        (region.label, region.bbox and tuple(map(round, region.bbox)), region.drafts)
        for region in draft.regions
    ]


PADDLE: dict[str, Any] = {
    "input_path": "paper.pdf",
    "page_index": 0,
    "model_settings": {"use_table_recognition": True},
    "parsing_res_list": [
        {"block_label": "doc_title", "block_content": "Title", "block_bbox": [20, 20, 180, 50]},
        {"block_label": "table", "block_content": "<html><body><table></table></body></html>",
         "block_bbox": [20, 60, 180, 90]},
        {"block_label": "image", "block_content": "", "block_bbox": [20, 100, 180, 150]},
    ],
    "layout_det_res": {"boxes": []},
}  # fmt: skip


def test_pp_structure_v3(tmp_path: Path) -> None:
    save(tmp_path / "paper_0_res.json", PADDLE)
    save(tmp_path / "paper_1_res.json", {**PADDLE, "page_index": 1, "parsing_res_list": []})
    draft = SavedJson(tmp_path)(page())
    assert output(draft) == [
        ("Title", (20, 20, 180, 50), ["Title"]),
        ("Table", (20, 60, 180, 90), ["<html><body><table></table></body></html>"]),
        ("Picture", (20, 100, 180, 150), []),
    ]
    assert draft.size == (200, 400)
    assert draft.regions[0].level == 1
    empty = SavedJson(tmp_path)(page(number=2))
    assert (empty.regions, empty.reason) == ([], "")
    missing = SavedJson(tmp_path)(page(number=3))
    assert missing.reason == f"nothing saved of page 3 of 'paper.pdf' in '{tmp_path}'"


def test_pp_structure_v3_with_sizes(tmp_path: Path) -> None:
    blocks = [
        {"block_label": "header", "block_content": "head", "block_bbox": [0, 0, 5, 5]},
        {"block_label": "text", "block_content": "first", "block_bbox": [0, 0, 50, 40]},
    ]
    data = {"width": 50, "height": 200, "page_index": None, "parsing_res_list": blocks}
    draft = SavedJson(save(tmp_path / "answer.json", data))(page(number=2))
    assert draft.texts == ["head", "first"]
    assert draft.regions[1].bbox == (0, 0, 200, 80)


def item(kind: str, place: int, label: str, top: float, **other: Any) -> dict[str, Any]:
    """An item of docling's, 10 points high, `top` points from the top of a page of 200."""
    bbox = {"l": 10, "t": 200 - top, "r": 90, "b": 190 - top, "coord_origin": "BOTTOMLEFT"}
    prov = [{"page_no": 1, "bbox": bbox, "charspan": [0, 5]}]
    item = {
        "self_ref": f"#/{kind}/{place}", "parent": {"$ref": "#/body"}, "children": [],
        "label": label, "prov": prov, **other,
    }  # fmt: skip
    return {**item, "orig": item["text"]} if "text" in item else item


def cell(row: int, column: int, text: str, columns: int = 1) -> dict[str, Any]:
    return {
        "start_row_offset_idx": row,
        "end_row_offset_idx": row + 1,
        "start_col_offset_idx": column,
        "end_col_offset_idx": column + columns,
        "row_span": 1,
        "col_span": columns,
        "text": text,
    }


def test_docling(tmp_path: Path) -> None:
    pytest.importorskip("docling_core")

    def refs(*names: str) -> list[dict[str, str]]:
        return [{"$ref": f"#/{name}"} for name in names]

    group = {"$ref": "#/groups/0"}
    texts = [
        item("texts", 0, "page_header", 0, text="Head", content_layer="furniture"),
        item("texts", 1, "section_header", 20, text="1 Start", level=1),
        item("texts", 2, "list_item", 40, text="one", enumerated=True, marker="1.", parent=group),
        item("texts", 3, "list_item", 50, text="two", enumerated=False, marker="-", parent=group),
        item("texts", 4, "caption", 70, text="Table 1", parent={"$ref": "#/tables/0"}),
        item("texts", 5, "formula", 110, text="E = 1"),
        item("texts", 6, "text", 120, text="Over two pages."),
    ]
    second = {"page_no": 2, "bbox": texts[6]["prov"][0]["bbox"], "charspan": [5, 15]}
    texts[6]["prov"].append(second)
    table = item("tables", 0, "table", 80, data={
        "num_rows": 2, "num_cols": 2,
        "table_cells": [cell(0, 0, "a & b", 2), cell(1, 1, "d"), cell(1, 0, "c")]})  # fmt: skip
    table["children"] = table["captions"] = refs("texts/4")
    document = {
        "schema_name": "DoclingDocument",
        "version": "1.6.0",
        "name": "paper",
        "body": {"self_ref": "#/body",
                 "children": refs("texts/0", "texts/1", "groups/0", "tables/0", "texts/5",
                                  "texts/6", "pictures/0")},
        "furniture": {"self_ref": "#/furniture", "children": []},
        "groups": [{"self_ref": "#/groups/0", "parent": {"$ref": "#/body"}, "label": "list",
                    "children": refs("texts/2", "texts/3")}],
        "texts": texts,
        "tables": [table],
        "pictures": [item("pictures", 0, "picture", 150)],
        "pages": {"1": {"size": {"width": 100.0, "height": 200.0}, "page_no": 1},
                  "2": {"size": {"width": 100.0, "height": 200.0}, "page_no": 2}},
    }  # fmt: skip
    draft = SavedJson(save(tmp_path / "paper.json", document))(page())
    assert output(draft) == [
        ("Page-header", (20, 0, 180, 20), ["Head"]),
        ("Section-header", (20, 40, 180, 60), ["1 Start"]),
        ("List-item", (20, 80, 180, 100), ["1. one"]),
        ("List-item", (20, 100, 180, 120), ["- two"]),
        ("Caption", (20, 140, 180, 160), ["Table 1"]),
        ("Table", (20, 160, 180, 180),
         ['<table><tr><td colspan="2">a &amp; b</td></tr><tr><td>c</td><td>d</td></tr></table>']),
        ("Formula", (20, 220, 180, 240), ["E = 1"]),
        ("Text", (20, 240, 180, 260), ["Over"]),
        ("Picture", (20, 300, 180, 320), []),
    ]  # fmt: skip
    assert SavedJson(tmp_path)(page(number=2)).texts == ["two pages."]
    assert "nothing saved of page 3" in SavedJson(tmp_path)(page(number=3)).reason


def test_files_of_other_documents_do_not_count(tmp_path: Path) -> None:
    save(tmp_path / "paper2_1.json", PADDLE)
    save(tmp_path / "paper_appendix.json", PADDLE)
    assert SavedJson(tmp_path)(page()).regions == []


def test_bad_files_are_reported_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match="does not exist"):
        SavedJson(tmp_path / "nowhere")
    (tmp_path / "paper.json").write_text("{")
    with pytest.raises(SoonerError, match=r"not as its format should be \(JSONDecodeError"):
        SavedJson(tmp_path)(page())
    save(tmp_path / "paper.json", {"pages": []})
    with pytest.raises(SoonerError, match="none of the known formats: paddle"):
        SavedJson(tmp_path)(page())
    save(tmp_path / "paper.json", {"schema_name": "DoclingDocument", "body": {"children": [3]}})
    with pytest.raises(SoonerError, match="not as its format should be"):
        SavedJson(tmp_path)(page())
    with pytest.raises(SoonerError, match="box"):
        SavedJson(save(tmp_path / "x.json", [{"type": "text", "bbox": [1], "page_idx": 0}]))(page())


TEXT = """# Title
Right below it.

## Part ##

- one
- two

| a | b |
|---|---|
| 1 | 2 |

$$
x
$$

![](picture.png)
"""


def test_markdown(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text(TEXT)
    draft = PlainText(tmp_path)(page(of=1))
    assert [(region.label, region.level) for region in draft.regions] == [
        ("Title", 1),
        ("Text", 0),
        ("Section-header", 2),
        ("List-item", 0),
        ("Table", 0),
        ("Formula", 0),
        ("Picture", 0),
    ]
    assert draft.texts[:3] == ["Title", "Right below it.", "Part"]
    assert {region.bbox for region in draft.regions} == {None}


def test_plain_text_of_several_pages(tmp_path: Path) -> None:
    (tmp_path / "paper.txt").write_text("one\n\fsecond\n\nwith two\n\f")
    assert PlainText(tmp_path)(page(number=1)).texts == ["one"]
    assert PlainText(tmp_path)(page(number=2)).texts == ["second", "with two"]
    assert "nothing saved of page 3" in PlainText(tmp_path)(page(number=3)).reason
    (tmp_path / "paper_2.txt").write_text("better")
    assert PlainText(tmp_path)(page(number=2)).texts == ["better"]
    (tmp_path / "paper-003.md").write_text("third")
    assert PlainText(tmp_path)(page(number=3)).texts == ["third"]


def test_a_text_without_pages_is_a_draft_of_every_page(tmp_path: Path) -> None:
    (tmp_path / "all.md").write_text("one\n\ntwo")
    for number in (1, 2):
        assert PlainText(tmp_path / "all.md")(page(number=number)).texts == ["one", "two"]


CONTENT_LIST: list[dict[str, Any]] = [
    {"type": "text", "text": "Title ", "text_level": 1, "bbox": [100, 50, 900, 100],
     "page_idx": 0},
    {"type": "text", "text": "Words. ", "bbox": [100, 110, 900, 200], "page_idx": 0},
    {"type": "equation", "text": "$$\nE = 1\n$$", "text_format": "latex",
     "bbox": [100, 210, 900, 300], "page_idx": 0},
    {"type": "table", "table_caption": ["Table 1 "], "table_footnote": ["note"],
     "table_body": "<table><tr><td>a</td></tr></table>", "bbox": [100, 310, 900, 400],
     "page_idx": 0},
    {"type": "image", "img_path": "images/x.jpg", "image_caption": ["Fig. 1"],
     "image_footnote": [], "bbox": [100, 410, 900, 500], "page_idx": 0},
    {"type": "list", "sub_type": "text", "list_items": ["one", "2. two"],
     "bbox": [100, 510, 900, 600], "page_idx": 0},
    {"type": "code", "sub_type": "code", "code_caption": [], "code_body": "x = 1\n y",
     "bbox": [100, 610, 900, 700], "page_idx": 0},
    {"type": "page_number", "text": "2", "bbox": [1, 2, 3, 4], "page_idx": 1},
]  # fmt: skip


def test_mineru_content_list(tmp_path: Path) -> None:
    save(tmp_path / "paper/auto/paper_content_list.json", CONTENT_LIST)
    draft = SavedJson(tmp_path)(page())
    assert output(draft) == [
        ("Title", (20, 20, 180, 40), ["Title"]),
        ("Text", (20, 44, 180, 80), ["Words."]),
        ("Formula", (20, 84, 180, 120), ["$$\nE = 1\n$$"]),
        ("Caption", None, ["Table 1"]),
        ("Table", (20, 124, 180, 160), ["<table><tr><td>a</td></tr></table>"]),
        ("Footnote", None, ["note"]),
        ("Picture", (20, 164, 180, 200), []),
        ("Caption", None, ["Fig. 1"]),
        ("List-item", (20, 204, 180, 240), ["- one\n2. two"]),
        ("Text", (20, 244, 180, 280), ["```\nx = 1\n y\n```"]),
    ]
    assert output(SavedJson(tmp_path)(page(number=2))) == [("Page-footer", (0, 1, 1, 2), ["2"])]


def test_an_older_content_list_has_no_boxes(tmp_path: Path) -> None:
    old = [{"type": "text", "text": "Abstract ", "text_level": 2, "page_idx": 0}]
    draft = SavedJson(save(tmp_path / "paper_content_list.json", old))(page())
    assert output(draft) == [("Section-header", None, ["Abstract"])]
    assert draft.regions[0].level == 2
