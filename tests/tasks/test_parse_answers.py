"""A model's answer as regions: broken JSON, boxes of blocks, shares of accepted tokens."""

from __future__ import annotations

from sooner.documents import PageDraft, Region
from sooner.tasks.parse.answers import placed, read
from tasks.parsing import BROKEN


def test_broken_json_is_read_as_far_as_possible() -> None:
    reading = read(BROKEN, "dots", PageDraft([]), (100, 200), (50, 100))
    assert reading.repaired
    assert [region.drafts for region in reading.regions] == [["# Fruit"], ["cut o"]]
    assert reading.regions[0].bbox == (20, 40, 60, 80)
    assert reading.markdown.startswith("# Fruit\n")
    whole = read(BROKEN[: BROKEN.index("}") + 1] + "]", "dots", PageDraft([]), (50, 100), None)
    assert not whole.repaired
    nothing = read("I can't read this", "dots", PageDraft([]), (50, 100), None)
    assert (nothing.repaired, nothing.markdown) == (True, "I can't read this")


def test_blocks_get_the_boxes_that_they_were_read_from() -> None:
    regions = [
        Region((0, 0, 9, 9), "Page-header", 0, ["Journal of Fruit"]),
        Region((0, 10, 9, 20), "Title", 1, ["A report on fruit"]),
        Region((0, 20, 9, 30), "Caption", 2, ["Figure one: pears and apples"]),
        Region((0, 30, 9, 40), "Text", 3, ["pears and apples are fruit"]),
    ]
    text = "# A Report on Fruit\n\nPears, and apples, are fruit.\n\nFigure one: pears and apples"
    blocks = placed(text + "\n\nnobody drafted this", regions)
    assert [region.bbox and region.bbox[1] for region in blocks] == [10, 30, 20, None]
    assert [region.label for region in blocks] == ["Title", "Text", "Caption", "Text"]
    assert [region.order for region in blocks] == [0, 1, 2, 3]


def test_drafted_pictures_stay_between_the_blocks_around_them() -> None:
    regions = [
        Region((0, 0, 9, 9), "Picture", 0),
        Region((0, 10, 9, 19), "Text", 1, ["Above the second figure."]),
        Region((0, 20, 9, 29), "Picture", 2),
        Region(None, "Picture", 3),
        Region((0, 30, 9, 39), "Text", 4, ["Below it, though."]),
        Region((0, 40, 9, 49), "Picture", 5),
    ]
    text = "Above the second figure.\n\nNobody drafted this.\n\nBelow it, though."
    blocks = placed(text, regions)
    tops = [region.bbox and region.bbox[1] for region in blocks]
    assert tops == [0, 10, None, 20, 30, 40]
    reading = read(text, "markdown", PageDraft(regions), (100, 100), None)
    assert reading.markdown == f"{text}\n"
    assert len(reading.written) == len(reading.regions) == 6
