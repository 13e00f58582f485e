"""Pages as objects: to bytes and back, under names that say what they are of."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from sooner.errors import SoonerError
from sooner.tasks.parse import FAILED, ParsedPage, ParsedRegion, StageStats
from sooner.tasks.parse.delivery import ASIDE, BROKEN, PAGES, PARSED, Delivery, PageTask
from sooner.tasks.parse.formats import render_page
from tasks.parse_jobs import listing

WHOLE = ParsedPage(
    source="sub/a.pdf",
    number=3,
    status="PARTIAL",
    reason="why \u2014 \ud800 lone",
    markdown="# eins\n\nzwei\n",
    raw="<h1>eins</h1>",
    form="html",
    regions=[
        ParsedRegion(0, "Title", "eins", (0.1, 2.0, 3.3333333333333335, 4.0), (1, 2, 3, 4), 0.7, 1),
        ParsedRegion(1, "Text", "zwei"),
    ],
    size=(60, 40),
    truncated="length",
    set_aside=True,
    repaired=True,
    drafter="ocr",
    notes=["note"],
    mode="relaxed",
    prefill={"recall": 0.5},
    stages={"page": StageStats(1, 8, 4, "relaxed", 2.0, 1.5, 0.25, 32.0)},
    seconds={"e2e": 0.1 + 0.2},
    compared={"parity": "identical", "decode_speedup": None},
)


def test_a_page_is_the_same_after_json() -> None:
    ours = json.loads(json.dumps(WHOLE.to_json()))
    assert ParsedPage.from_json(ours) == WHOLE
    for field in fields(ParsedPage):  # a new attribute is to be in this test
        if field.name != "source":
            assert getattr(WHOLE, field.name) != getattr(ParsedPage("", 0), field.name), field.name
    data = {**ours, "of a later version": 1}
    del data["stages"]
    assert ParsedPage.from_json(data) == replace(WHOLE, stages={})
    assert json.loads(render_page("json", WHOLE))["reason"] == WHOLE.reason


def task(number: int, settings_hash: str = "s", place: str = "b.pdf") -> PageTask:
    return PageTask(f"in/{place}", place, "i", settings_hash, number)


def test_pages_are_the_same_after_a_store(tmp_path: Path) -> None:
    records = Delivery(tmp_path)
    records.save(task(3), replace(WHOLE, set_aside=False))
    # A document has many places.
    assert records.read(task(3)) == replace(WHOLE, source="b.pdf", set_aside=False)
    assert listing(tmp_path) == []
    name = f"{PAGES}/i/s/000003.json"
    assert (tmp_path / name).is_file()
    (tmp_path / name).write_text("{}")
    with pytest.raises(SoonerError, match=r"is no record of a page; remove it") as caught:
        records.read(task(3))
    assert "\n" not in str(caught.value)


def test_what_was_parsed_goes_before_what_failed(tmp_path: Path) -> None:
    records = Delivery(tmp_path)
    failed = replace(WHOLE, status=FAILED, set_aside=False)
    for page in (WHOLE, failed):
        records.save(task(3), page)
    records.save(task(4), replace(failed, number=4, set_aside=True))
    records.save(task(5, "t"), replace(failed, number=5))
    assert records.read(task(3)).status == "PARTIAL"
    assert records.ends(task(0)) == {3: PARSED, 4: ASIDE}
    assert records.ends(task(0, "t")) == {5: BROKEN}
    records.store.remove(f"{PAGES}/i/s/000003.json")
    assert records.read(task(3)).status == FAILED
    assert records.ends(replace(task(0), input_hash="unknown")) == {}
    assert records.read(task(9)) is None
    records.save(task(3), failed, is_fresh=True)
    records.save(task(3), WHOLE)
    records.save(task(3), failed, is_fresh=True)
    assert records.read(task(3)).status == FAILED
