"""Pages and documents that fail: each is told with its reason, and the others are read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from documents.paper import without_pages
from sooner.documents import PageDraft, PageRange
from sooner.errors import SoonerError
from sooner.tasks.parse import FAILED
from sooner.tasks.parse.output import Intake
from sooner.tasks.parse.worker import DeviceFaultError
from tasks.drafting import EchoParser, SayNumber, pdf, picture
from tasks.parse_jobs import SMALL, job, records, run


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Good and bad documents."""
    from reportlab.lib.pdfencrypt import StandardEncryption

    root = tmp_path / "mixed"
    root.mkdir()
    pdf(root / "a-good.pdf", 1)
    pdf(root / "b-locked.pdf", 1, encrypt=StandardEncryption("secret", canPrint=0))
    (root / "c-cut.pdf").write_bytes((root / "a-good.pdf").read_bytes()[:300])
    (root / "d-empty.pdf").write_bytes(b"")
    picture(root / "e-dot.png", 1, 1)
    picture(root / "f-good.png")
    return root


def test_bad_documents_do_not_stop_good_ones(mixed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    events: list[dict] = []
    first = job(mixed, out, SayNumber(), on_page=lambda record, counts: events.append(record))
    counts = first.run(EchoParser)
    assert (counts.done, counts.failed, counts.total) == (2, 4, 6)
    reasons = {name: entry["reason"] for (name, _), entry in records(out).items()}
    assert "encrypted" in reasons["b-locked.pdf"]
    assert "truncated" in reasons["c-cut.pdf"]
    assert "empty" in reasons["d-empty.pdf"]
    assert "1 x 1 px" in reasons["e-dot.png"]
    assert all("\n" not in reason for reason in reasons.values())
    assert reasons["a-good.pdf"] == reasons["f-good.png"] == ""
    assert sorted(entry["status"] for entry in events) == [*[FAILED] * 4, *["SUCCESS"] * 2]
    # What failed is tried again, what is done is not.
    again = job(mixed, out, SayNumber())
    assert again.run(lambda: pytest.fail("no model is needed")).failed == 4
    opened = job(mixed, out, intake=Intake(resolution=SMALL.resolution, password="secret"))
    assert (opened.run(EchoParser).done, opened.counts.failed) == (1, 3)
    assert records(out)["b-locked.pdf", 1]["status"] == "SUCCESS"
    assert ("b-locked.pdf", 0) not in records(out)


def test_pages_without_anything_to_read_or_of_silly_size(tmp_path: Path) -> None:
    """A page without text is the model's to read; others fail with the reason, one line each."""
    root, out = tmp_path / "odd", tmp_path / "out"
    root.mkdir()
    picture(root / "blank.png")
    picture(root / "dot.png", 1, 1)
    without_pages(root / "zero.pdf")

    class SeeNothing(SayNumber):
        def __call__(self, page: Any) -> Any:
            return PageDraft([], 0.0, self.name, page.size, "no text found on the page")

    counts = job(root, out, SeeNothing()).run(EchoParser)
    assert (counts.done, counts.failed) == (1, 2)
    entries = {name: entry for (name, _), entry in records(out).items()}
    assert entries["blank.png"]["notes"] == ["no text found on the page"]
    reasons = {
        name: entry["reason"] for name, entry in entries.items() if entry["status"] == FAILED
    }
    assert reasons == {
        "dot.png": "is 1 x 1 px, too small to hold text (at least 8 px a side)",
        "zero.pdf": "is damaged",
    }


def test_a_page_that_no_document_has_is_an_error_in_the_end(tmp_path: Path) -> None:
    (source := tmp_path / "in").mkdir()
    pdf(source / "a.pdf", 1)
    pdf(source / "b.pdf", 3)
    out = tmp_path / "out"
    for text, missing in (("2,5", "5"), ("1,7-9", "7-9"), ("4-", "4-")):
        parse_job = job(source, out, intake=Intake(PageRange.parse(text), SMALL.resolution))
        with pytest.raises(SoonerError, match=f"no document has page {missing}: the longest has 3"):
            parse_job.run(EchoParser)
        assert parse_job.counts.failed == 0
    assert sorted(records(out)) == [("a.pdf", 1), ("b.pdf", 1), ("b.pdf", 2)]
    third = Intake(PageRange.parse("3"), SMALL.resolution)  # that one of them has is enough
    assert job(source, out, intake=third).run(EchoParser).failed == 0


@pytest.mark.parametrize("error", [SoonerError("the page is too large"), RuntimeError("a\nb")])
def test_a_page_that_fails_does_not_stop_the_run(tmp_path: Path, error: Exception) -> None:
    source, out = pdf(tmp_path / "a.pdf", 3), tmp_path / "out"
    assert run(source, out, raising={2: error}).report == [1, 2, 3]
    entries = records(out)
    assert [entry["status"] for entry in entries.values()] == ["SUCCESS", FAILED, "SUCCESS"]
    expected = "RuntimeError: a b" if isinstance(error, RuntimeError) else "the page is too large"
    assert entries["a.pdf", 2]["reason"] == expected
    whole = json.loads((out / "a.pdf.json").read_text())
    assert whole["status"] == "PARTIAL"
    assert whole["failed"] == [{"page": 2, "reason": expected}]
    assert run(source, out).report == [2]
    assert json.loads((out / "a.pdf.json").read_text())["status"] == "SUCCESS"


def test_a_broken_device_stops_the_run(tmp_path: Path) -> None:
    """Every later page would fail the same way; they are left for the next run instead."""
    source, out = pdf(tmp_path / "a.pdf", 4), tmp_path / "out"
    fault = torch.AcceleratorError("CUDA error: device-side assert triggered\nCompile with ...")
    parser = EchoParser({2: fault})
    with pytest.raises(DeviceFaultError) as caught:
        job(source, out).run(lambda: parser)
    assert parser.report == [1, 2]
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(r"a.pdf', page 2: AcceleratorError: CUDA error: device-side assert", message)
    assert message.endswith("what is finished is kept, the same command goes on there")
    assert (out / "a.pdf/page-0001.md").is_file()
    assert run(source, out).report == [2, 3, 4]
    assert len(records(out)) == 4


def test_unexpected_errors_get_through_when_debugging(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="bug"):
        run(
            pdf(tmp_path / "a.pdf", 1),
            tmp_path / "out",
            raising={1: RuntimeError("bug")},
            debug=True,
        )
