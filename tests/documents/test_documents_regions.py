"""Regions: what they refuse, and their reading order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.documents import Region
from sooner.documents.grouping import in_reading_order
from sooner.documents.regions import Box, box, label_of
from sooner.errors import SoonerError

edges = st.floats(0, 2000, allow_nan=False)


def test_boxes_in_thousandths_hold_the_box() -> None:
    region = Region((100.2, 50, 199.9, 1000))
    assert region.thousandths((1000, 500)) == (100, 100, 200, 1000)
    assert Region(None).thousandths((10, 10)) is None
    # Lone surrogates are replaced, what is a letter is kept.
    region = Region(None, drafts=["a\ud800b", "\ufeff\U0001f600 \ud83d\ude00"])
    assert region.drafts == ["a\ufffdb", "\ufeff\U0001f600 \U0001f600"]


def test_bad_regions_are_refused_in_a_line() -> None:
    with pytest.raises(SoonerError, match="unknown region label 'Blob'"):
        Region(None, "Blob")
    with pytest.raises(SoonerError, match="is no box"):
        Region((1, 2, 3))  # type: ignore[arg-type]


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
