"""Drafters of a job: chosen by name, run ahead of the parser, guarded against faults."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sooner.documents import read_pages
from sooner.documents.drafters import TextLayer
from sooner.errors import SoonerError
from sooner.tasks.parse import FirstOf, GuardedDrafter
from sooner.tasks.parse.drafters import guard, make_drafter, processes_of
from tasks.drafting import Die, EchoParser, Raise, SayNumber, pdf
from tasks.parse_jobs import job, records, run


def test_a_drafter_that_raises_leaves_plain_decoding(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(pdf(tmp_path / "a.pdf", 3), out, GuardedDrafter(Raise(), timeout=30, processes=0))
    assert (out / "a.pdf.md").read_text() == "number 1\n\nnothing drafted\n\nnumber 3\n"
    assert records(out)["a.pdf", 2]["notes"] == ["failed with RuntimeError: out of ink"]


@pytest.mark.slow
def test_a_drafter_that_kills_its_process_leaves_plain_decoding(tmp_path: Path) -> None:
    out, drafter = tmp_path / "out", GuardedDrafter(Die(), timeout=60)
    try:
        run(pdf(tmp_path / "a.pdf", 3), out, drafter)
    finally:
        drafter.close()
    assert (out / "a.pdf.md").read_text() == "number 1\n\nnothing drafted\n\nnumber 3\n"
    assert "its process died" in records(out)["a.pdf", 2]["notes"][0]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_results_do_not_depend_on_the_number_of_workers(tmp_path: Path, workers: int) -> None:
    """Pages come in order, each with its own draft, and no more are in memory than there are
    workers."""
    source, out = pdf(tmp_path / "a.pdf", 9), tmp_path / "out"
    lock, started, finished = threading.Lock(), [0], [0]

    class Uneven(SayNumber):
        def __call__(self, page: Any) -> Any:
            with lock:
                started[0] += 1
                assert started[0] <= finished[0] + workers + 1
            time.sleep(0.02 * (page.number % 3 == 0))
            return super().__call__(page)

    class Checked(EchoParser):
        def __call__(self, page: Any, draft: Any = None) -> Any:
            parsed = super().__call__(page, draft)
            with lock:
                finished[0] += 1
            return parsed

    counts = job(source, out, Uneven(), workers=workers, debug=True).run(Checked)
    assert (counts.done, counts.failed) == (9, 0)
    expected = [f"number {number}\n" for number in range(1, 10)]
    assert (out / "a.pdf.md").read_text() == "\n".join(expected)
    assert [page for _, page in records(out)] == list(range(1, 10))


def test_drafters_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    assert make_drafter("none") is None
    assert isinstance(make_drafter("text-layer"), TextLayer)
    assert isinstance(make_drafter("auto"), FirstOf)
    page = next(iter(read_pages(pdf(tmp_path / "a.pdf"))))
    assert make_drafter(f"text:{tmp_path / 'a.txt'}")(page).texts == ["text"]
    for spec, error in {
        "ocrr": "did you mean 'ocr'",
        "ocr,none": "unknown drafter 'ocr,none'",
        "saved:": "needs a file or a folder",
        "saved:nowhere": "does not exist",
    }.items():
        with pytest.raises(SoonerError, match=error):
            make_drafter(spec)


def test_ocr_runs_in_a_separate_process(tmp_path: Path) -> None:
    for spec, workers, count in [("ocr", 1, 1), ("auto", 1, 1), ("text-layer", 1, 0),
                                 ("ocr", 0, 0)]:  # fmt: skip
        assert processes_of(guard(SayNumber(), spec, workers=workers)) == count
    assert guard(None, "none") is None
    several = guard(SayNumber(), "ocr", workers=2)
    assert [processes_of(drafter) for drafter in (None, guard(SayNumber(), "ocr"), several)] == [
        0,
        1,
        2,
    ]
    with pytest.raises(SoonerError, match="workers is -1"):
        guard(SayNumber(), "ocr", workers=-1)
