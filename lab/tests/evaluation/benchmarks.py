"""Small folders of each benchmark's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

TABLE = (
    "<table><tr><th>fruit</th><th>price</th></tr><tr><td>apple</td><td>3</td></tr>"
    "<tr><td>pear</td><td>5</td></tr></table>"
)
PIPES = "| fruit | price |\n|---|---|\n| apple | 3 |\n| pear | 5 |"


def block(category: str, order: int | None, **fields: Any) -> dict[str, Any]:
    poly = [0, 0, 9, 0, 9, 9, 0, 9]
    return {
        "category_type": category, "poly": poly, "order": order, "anno_id": order, "ignore": False,
        **fields,
    }  # fmt: skip


def omni_page(image: str, blocks: list[dict], **attributes: str) -> dict[str, Any]:
    defaults = {"data_source": "book", "language": "english", "layout": "single_column"}
    info = {"page_no": 0, "height": 90, "width": 60, "image_path": image}
    info["page_attribute"] = {**defaults, **attributes}
    return {"layout_dets": blocks, "page_info": info, "extra": {"relation": []}}


PAGES = [
    omni_page(
        "one.png",
        [
            block("title", 1, text="Fruit on the market"),
            block("text_block", 2, text="Apples are cheap this year, and pears are not."),
            block("table", 3, html=TABLE),
            block("equation_isolated", 4, latex=r"$$ a + \mathrm{b} = c $$"),
            block("header", None, text="The Daily Fruit"),
        ],
    ),
    omni_page(
        "two.jpg",
        [block("text_block", 1, text="水果很便宜。")],
        data_source="newspaper",
        language="simplified_chinese",
    ),
]
FRUIT_PAGE = rf"""# Fruit on the market

Apples are cheap **this year**, and pears are not.

{PIPES}

$$ a + b = c $$
"""
TWO = "水果很便宜。\n"


def omnidocbench(folder: Path, pages: list[dict] | None = None, pictures: bool = True) -> Path:
    (folder / "images").mkdir(parents=True)
    pages = PAGES if pages is None else pages
    (folder / "OmniDocBench.json").write_text(json.dumps(pages))
    for page in pages if pictures else []:
        draw(folder / "images" / page["page_info"]["image_path"])
    return folder


def draw(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (56, 84), "white").save(path)


TESTS = {
    "table_tests": [
        {"pdf": "a/x.pdf", "page": 1, "id": "t1", "type": "table", "cell": "3", "left": "apple",
         "top_heading": "price", "max_diffs": 0},
        {"pdf": "a/x.pdf", "page": 1, "id": "t2", "type": "table", "cell": "5", "up": "9"},
    ],
    "multi_column": [
        {"pdf": "b.pdf", "page": 2, "id": "o1", "type": "order", "before": "first words",
         "after": "last words", "max_diffs": 1},
        {"pdf": "b.pdf", "page": 2, "id": "p1", "type": "present", "text": "“first” words",
         "max_diffs": 2},
        {"pdf": "b.pdf", "page": 2, "id": "n1", "type": "absent", "text": "Page 7",
         "case_sensitive": False},
    ],
    "arxiv_math": [{"pdf": "c.pdf", "page": 1, "id": "m1", "type": "math", "math": "x^2"}],
}  # fmt: skip


def olmocr(folder: Path, tests: dict[str, list[dict]] | None = None) -> Path:
    (folder / "bench_data" / "pdfs").mkdir(parents=True)
    for name, records in (TESTS if tests is None else tests).items():
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "bench_data" / f"{name}.jsonl").write_text(lines)
    return folder


def ocean(folder: Path) -> Path:
    data = folder / "OCR_eval_data"
    sets = {"document_en": "The quick brown fox jumps over the dog.", "document_zh": "天气很好。"}
    for name, text in sets.items():
        draw(data / name / "0a.png")
        turns = [{"from": "human", "value": "<image>\nOCR this image:"}]
        turns.append({"from": "gpt", "value": f" {text}"})
        records = [{"image": "0a.png", "conversations": turns}]
        (data / f"{name}.json").write_text(json.dumps(records))
    (data / "handwritten_en.json").write_text("[{}, {}]")
    return folder
