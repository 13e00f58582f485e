"""One output folder, several processes: shards, and pages that kill are set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.documents import Document
from sooner.errors import SoonerError
from sooner.storage import open_store
from sooner.tasks.parse import Delivery
from sooner.tasks.parse.delivery import DOCUMENTS
from sooner.tasks.parse.job import shard_of
from tasks.drafting import EchoParser, SayNumber, pdf
from tasks.parse_deaths import die, die_opening
from tasks.parse_jobs import job, records, run
from tasks.parse_workers import FORMATS, begin, left_over, outputs, tree, work

pytestmark = pytest.mark.slow

PAGES = 4 + 5 + 6 + 1
"""Pages of `tree`, its second copy of a document left out."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree(tmp_path_factory.mktemp("source") / "in")


@pytest.fixture(scope="module")
def alone(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process alone makes of `source`."""
    out = tmp_path_factory.mktemp("alone") / "out"
    assert len(work(source, out, 0.0)) == PAGES
    assert left_over(out) == []
    return outputs(out)


def test_a_page_that_kills_its_process_is_set_aside_after_three(tmp_path: Path) -> None:
    """With its reason, in the run that finds out, which parses all others; later runs leave it
    alone, and only `fresh` tries it again. Pages that were read ahead are not blamed."""
    source, out = pdf(tmp_path / "a.pdf", 4), tmp_path / "out"
    for _ in range(3):
        process = begin(die, source, out, workers=2)
        process.join(60)
        assert process.exitcode == 7
    counts = job(source, out, SayNumber()).run(EchoParser)
    assert (counts.done, counts.failed, counts.before) == (2, 1, 1)
    record = records(out)["a.pdf", 2]
    assert (record["status"], record["set_aside"]) == ("FAILED", True)
    assert record["reason"].startswith("3 processes died at it")
    assert record["reason"].endswith("it is set aside; --fresh tries it again")
    assert (out / "a.pdf.md").read_text() == "number 1\n\nnumber 3\n\nnumber 4\n"
    open_store(out).sweep(0)  # a thread that read ahead may have died within a write
    assert left_over(out) == []
    again = job(source, out, SayNumber())
    counts = again.run(lambda: pytest.fail("nothing is left"))
    assert (counts.failed, counts.before, counts.aside) == (0, 3, 1)
    assert run(source, out, SayNumber(), fresh=True).report == [1, 2, 3, 4]
    assert records(out)["a.pdf", 2]["status"] == "SUCCESS"


def test_a_document_that_kills_its_readers_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pdf(tmp_path / "in" / "a.pdf", 1)
    pdf(tmp_path / "in" / "b.pdf", 2)
    source, out = tmp_path / "in", tmp_path / "out"
    for _ in range(3):
        process = begin(die_opening, source, out)
        process.join(60)
        assert process.exitcode == 9
    for failed in (1, 0):
        parse_job = job(source, out)
        assert parse_job.run(EchoParser).failed == failed
        assert [record["status"] for record in records(out).values()] == [
            "FAILED",
            *["SUCCESS"] * 2,
        ]
        assert list(records(out)) == [("a.pdf", 0), ("b.pdf", 1), ("b.pdf", 2)]
    assert parse_job.counts.aside == 1


def test_a_document_that_was_opened_is_not_blamed_for_earlier_deaths(tmp_path: Path) -> None:
    """Whoever killed those processes, a later death is its first."""
    source, out = pdf(tmp_path / "a.pdf", 1), tmp_path / "out"
    for _ in range(2):
        for _ in range(2):
            process = begin(die_opening, source, out)
            process.join(60)
            assert process.exitcode == 9
        counts = job(source, out).run(EchoParser)
        assert (counts.done + counts.before, counts.failed) == (1, 0)
        store = open_store(out)
        for entry in [*store.names(f"{DOCUMENTS}/")]:
            store.remove(entry.name)  # so that it is opened again


def test_shards_are_all_documents_each_once(source: Path, tmp_path: Path, alone) -> None:
    out = tmp_path / "out"
    pages = [work(source, out, 0.0, shard=f"{number}/3") for number in (1, 2, 3)]
    assert sum(map(len, pages)) == PAGES
    assert outputs(out) == alone
    documents = [
        Document(path, path)
        for path in (Path(f"{number}/{name}.pdf") for number in range(50) for name in "abcdef")
    ]
    parts = [shard_of(documents, f"{number}/8") for number in range(1, 9)]
    assert sorted(item.source for part in parts for item in part) == sorted(
        item.source for item in documents
    )
    assert 20 < min(map(len, parts)) <= max(map(len, parts)) < 60
    assert shard_of(documents, " 2/8") == parts[1]
    for wrong in ("0/8", "9/8", "1", "1/0", "a/b", "1/2/3", "-1/2"):
        with pytest.raises(SoonerError, match="write it as 1/8 to 8/8"):
            shard_of(documents, wrong)


def test_other_settings_are_kept_beside_and_the_asked_ones_are_shown(tmp_path: Path) -> None:
    """Also after one run was interrupted: no file of the others' stays."""
    source, out = pdf(tmp_path / "a.pdf", 3), tmp_path / "out"
    every = Delivery(out, FORMATS)

    class Other(EchoParser):
        def __call__(self, page, draft=None):
            from dataclasses import replace

            if page.number == 3 and self.raising:
                raise KeyboardInterrupt
            parsed = super().__call__(page)
            region = replace(parsed.regions[0], text="other", bbox=(9.0, 9.0, 30.0, 30.0))
            return replace(parsed, markdown="other\n", raw="other", regions=[region])

    run(source, out, SayNumber(), delivery=every)
    first = outputs(out)
    with pytest.raises(KeyboardInterrupt):
        job(source, out, delivery=every, settings_hash="t").run(lambda: Other({0: OSError()}))
    assert (out / "a.pdf/page-0002.md").read_text() == "other\n"
    assert run(source, out, SayNumber(), delivery=every).report == []
    assert outputs(out) == first
    again = Other()
    job(source, out, delivery=every, settings_hash="t").run(lambda: again)
    assert again.report == [3]
    assert (out / "a.pdf.md").read_text() == "other\n\nother\n\nother\n"
    second = outputs(out)
    assert run(source, out, SayNumber(), delivery=every).report == []
    assert outputs(out) == first
    assert job(source, out, delivery=every, settings_hash="t").run(EchoParser).before == 3
    assert outputs(out) == second
