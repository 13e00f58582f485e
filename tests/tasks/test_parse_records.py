"""Pages as objects: to bytes and back, under names that say what they are of."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from sooner.errors import SoonerError
from sooner.storage import open_store
from sooner.tasks.parse import FAILED, ParsedPage, ParsedRegion, StageStats
from sooner.tasks.parse.records import PAGES, PageRecord, PageRecords
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
    repaired=True,
    drafter="ocr",
    notes=["note"],
    mode="relaxed",
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


def test_records_are_the_same_after_a_store(tmp_path: Path) -> None:
    page_records = PageRecords(open_store(tmp_path))
    record = PageRecord(WHOLE, "i" * 64, "s" * 16)
    page_records.write(record)
    read = page_records.read(record.input_hash, record.settings_hash, 3)
    assert read == replace(record, page=replace(WHOLE, source=""))  # a document has many places
    assert listing(tmp_path) == []
    name = f"{PAGES}/{'i' * 64}/{'s' * 16}/000003.json"
    assert (tmp_path / name).is_file()
    (tmp_path / name).write_text("{}")
    with pytest.raises(SoonerError, match=r"is no record of a page; remove it") as caught:
        page_records.read(record.input_hash, record.settings_hash, 3)
    assert "\n" not in str(caught.value)


def test_what_was_parsed_goes_before_what_failed(tmp_path: Path) -> None:
    page_records = PageRecords(open_store(tmp_path))
    for status in ("SUCCESS", FAILED):
        page_records.write(PageRecord(replace(WHOLE, status=status), "i", "s"))
    page_records.write(PageRecord(replace(WHOLE, status=FAILED, number=4), "i", "s", is_aside=True))
    page_records.write(PageRecord(replace(WHOLE, status=FAILED, number=5), "i", "t"))
    assert page_records.read("i", "s", 3).page.status == "SUCCESS"
    done = page_records.of("i", "s")
    assert (done.parsed, done.aside, done.numbers) == ({3}, {4}, {3, 4})
    assert page_records.of("i", "t").failed == {5}
    page_records.forget("i/s/000003", ".json")
    assert page_records.read("i", "s", 3).page.status == FAILED
    assert page_records.of("unknown", "s").numbers == set()
    assert page_records.read("i", "s", 9) is None
