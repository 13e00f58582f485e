"""Regions: JSON and back, reading order, and several drafters' regions as one."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents.pages import blank
from sooner.documents import Page, PageDraft, Region
from sooner.documents.drafters import AllOf
from sooner.documents.grouping import in_reading_order
from sooner.documents.regions import Box, Label, box, iou, label_of
from sooner.errors import SoonerError

edges = st.floats(0, 2000, allow_nan=False)
regions = st.builds(
    Region,
    bbox=st.none() | st.tuples(edges, edges, edges, edges),
    label=st.sampled_from(list(Label)),
    order=st.integers(0, 99),
    drafts=st.lists(st.text(max_size=20), max_size=3),
    level=st.integers(0, 6),
)
drafts = st.builds(
    PageDraft,
    regions=st.lists(regions, max_size=5),
    seconds=st.floats(0, 100),
    drafter=st.text(max_size=5),
    size=st.tuples(st.integers(0, 3000), st.integers(0, 3000)),
    reason=st.text(max_size=5),
)


@given(drafts)
def test_a_page_draft_survives_json(draft: PageDraft) -> None:
    assert PageDraft.from_json(json.loads(json.dumps(asdict(draft)))) == draft


def test_boxes_in_thousandths_hold_the_box() -> None:
    region = Region((100.2, 50, 199.9, 1000))
    assert region.thousandths((1000, 500)) == (100, 100, 200, 1000)
    assert Region(None).thousandths((10, 10)) is None


def test_bad_regions_are_refused_in_a_line() -> None:
    with pytest.raises(SoonerError, match="unknown region label 'Blob'"):
        Region(None, "Blob")
    with pytest.raises(SoonerError, match="is no box"):
        Region((1, 2, 3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'box'"):
        Region.from_json({"box": [1, 2, 3, 4]})
    with pytest.raises(SoonerError, match="list of texts"):
        Region.from_json({"drafts": "text"})


def test_labels_of_other_tools_are_known() -> None:
    names = ["paragraph_title", "interline_equation", "list_item", "figure caption", "Page-footer"]
    labels = [label_of(name) for name in names]
    assert labels == ["Section-header", "Formula", "List-item", "Caption", "Page-footer"]
    assert label_of("something new") == "Text"


def reading_order(boxes: list[Box]) -> list[int]:
    """Indices of boxes in reading order."""
    ordered = in_reading_order([Region(bbox, drafts=[str(n)]) for n, bbox in enumerate(boxes)])
    return [int(region.drafts[0]) for region in ordered]


@given(st.lists(st.tuples(edges, edges, edges, edges).map(box), max_size=12))
def test_reading_order_leaves_nothing_out(boxes: list[Box]) -> None:
    assert sorted(reading_order(boxes)) == list(range(len(boxes)))


def test_a_column_is_read_from_top_to_bottom() -> None:
    assert reading_order([(0, 200, 90, 250), (0, 0, 100, 50), (0, 100, 80, 150)]) == [1, 2, 0]


def test_two_columns_are_read_in_turn() -> None:
    title, footer = (0, 0, 200, 20), (0, 300, 200, 310)
    left, right = [(0, 30, 95, 100), (0, 110, 95, 200)], [(105, 30, 200, 90), (105, 100, 200, 200)]
    boxes = [right[1], footer, left[1], title, right[0], left[0]]
    assert reading_order(boxes) == [3, 5, 2, 4, 0, 1]


def test_a_figure_over_both_columns_parts_them() -> None:
    above = [(0, 0, 95, 100), (105, 0, 200, 100)]
    figure = (0, 110, 200, 200)
    below = [(0, 210, 95, 300), (105, 210, 200, 300)]
    assert reading_order([below[1], above[1], figure, below[0], above[0]]) == [4, 1, 2, 3, 0]


def test_columns_that_reach_over_a_little_are_still_columns() -> None:
    boxes = [(0, 0, 101, 40), (0, 50, 99, 90), (100, 0, 200, 40), (99, 50, 200, 90)]
    assert reading_order(boxes) == [0, 1, 2, 3]


def test_headers_come_first_footers_last_and_what_has_no_box_stays() -> None:
    regions = in_reading_order(
        [
            Region((105, 30, 200, 90), drafts=["right"]),
            Region(None, drafts=["note"]),
            Region((0, 190, 95, 199), "Page-footer", drafts=["17"]),
            Region((0, 30, 95, 180), drafts=["left"]),
            Region((105, 0, 200, 9), "Page-header", drafts=["head"]),
        ]
    )
    assert [region.drafts[0] for region in regions] == ["head", "left", "right", "note", "17"]
    assert [region.order for region in regions] == [0, 1, 2, 3, 4]


class FixedDrafter:
    """Returns one draft of every page."""

    def __init__(self, fixed: PageDraft) -> None:
        self.fixed, self.name = fixed, fixed.drafter

    def __call__(self, page: Page) -> PageDraft:
        return self.fixed


def merge(*drafts: PageDraft) -> PageDraft:
    return AllOf(*map(FixedDrafter, drafts))(blank())


def draft(name: str, *regions: Region, size: tuple[int, int] = (200, 200)) -> PageDraft:
    return PageDraft(list(regions), 1.0, name, size)


def test_texts_of_the_same_box_become_branches() -> None:
    first = draft("a", Region((0, 0, 100, 20), "Title", 0, ["Tit1e"]), Region((0, 30, 100, 90)))
    two = draft(
        "b",
        Region((2, 1, 101, 21), "Text", 0, ["Title", "Tit1e"]),
        Region((0, 120, 100, 190), "Table", 1, ["a\tb"]),
    )
    merged = merge(first, two)
    assert [region.drafts for region in merged.regions] == [["Tit1e", "Title"], [], ["a\tb"]]
    assert [region.label for region in merged.regions] == ["Title", "Text", "Table"]
    assert (merged.drafter, merged.seconds) == ("a+b", 2.0)


def test_small_boxes_with_the_same_text_are_one_region() -> None:
    boxes = (100, 100, 117, 115), (96, 96, 121, 118)
    assert iou(*boxes) < 0.5
    first, same, other = (
        draft(name, Region(bbox, drafts=[text]))
        for name, bbox, text in zip("abc", (*boxes, boxes[1]), ("17", "17", "18"), strict=True)
    )
    assert merge(first, same).texts == ["17"]
    assert merge(first, other).texts == ["18", "17"]
    elsewhere = draft("d", Region((100, 150, 117, 165), drafts=["17"]))
    assert merge(first, elsewhere).texts == ["17", "17"]


def test_boxes_of_another_size_are_brought_together() -> None:
    first = draft("a", Region((0, 0, 100, 20), drafts=["x"]))
    two = draft("b", Region((0, 0, 50, 10), drafts=["y"]), size=(100, 100))
    assert merge(first, two).regions[0].drafts == ["x", "y"]


def test_an_empty_draft_leads_nothing_and_its_reason_stays() -> None:
    empty = PageDraft([], 0.5, "a", (200, 200), "no text layer")
    merged = merge(empty, draft("b", Region((0, 0, 9, 9), drafts=["x"])))
    assert merged.texts == ["x"]
    assert merged.reason == "a: no text layer"
    assert merge(empty).regions == []


def test_iou_is_shared_area_over_all_area() -> None:
    assert iou((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert iou((0, 0, 1, 1), (5, 5, 6, 6)) == 0
