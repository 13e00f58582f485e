"""Documents whose results can't be written: each is FAILED in a line, and the others are parsed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sooner.storage import StorageError
from sooner.tasks.parse import FAILED
from tasks.drafting import EchoParser, SayNumber, pdf
from tasks.parse_jobs import job, listing, records, run

LATIN = os.fsdecode(b"caf\xe9.pdf")
LONG = "n" * 251 + ".pdf"


def documents(root: Path, *names: str) -> Path:
    """Documents of two pages, of different contents: `b.pdf` and those of other names."""
    root.mkdir(exist_ok=True)
    for number, name in enumerate(("b.pdf", *names)):
        pdf(root / "made.pdf", 2, pageCompression=number % 2, title=f"{number}")
        os.rename(root / "made.pdf", root / name)
    return root


def outcome(source: Path, out: Path, **options: Any) -> tuple[dict[tuple[str, int], str], list]:
    """Failures by document and page, and the lines that were reported while the job ran."""
    lines: list[dict] = []
    parse_job = job(source, out, SayNumber(), on_page=lambda line, _: lines.append(line), **options)
    counts = parse_job.run(EchoParser)
    assert counts.failed == sum(line["status"] == FAILED for line in lines)
    failed = {key: line["reason"] for key, line in records(out).items() if line["status"] == FAILED}
    return failed, lines


@pytest.mark.parametrize("name", [LATIN, LONG])
def test_a_name_that_results_can_not_have_fails_its_document_alone(
    name: str, tmp_path: Path
) -> None:
    source, out = documents(tmp_path / "in", name, "z.pdf"), tmp_path / "out"
    for todo in (4, 0):  # a second run finds the others done, and tries this one again
        failed, lines = outcome(source, out)
        assert [line["status"] for line in lines].count(FAILED) == 1
        assert len(lines) == todo + 1
        assert [*failed] == [(name, 0)]
        assert "rename it" in failed[name, 0]
        assert "\n" not in failed[name, 0]
        assert {"b.pdf.md", "z.pdf.md"} <= {*listing(out)}
    os.rename(source / name, source / "c.pdf")
    failed, lines = outcome(source, out)
    assert [(line["document"], line["page"]) for line in lines] == [("c.pdf", 1), ("c.pdf", 2)]


def test_a_file_in_the_place_of_a_folder_fails_its_document_alone(tmp_path: Path) -> None:
    source, out = documents(tmp_path / "in", "z.pdf"), tmp_path / "out"
    (out / "b.pdf.md").mkdir(parents=True)
    (out / "z.pdf").write_text("in the way")
    failed, _ = outcome(documents(source, "c.pdf"), out)
    assert [*failed] == [("b.pdf", 0), ("z.pdf", 0)]
    assert (out / "c.pdf.md").exists()
    (out / "b.pdf.md").rmdir()
    (out / "z.pdf").unlink()
    failed, lines = outcome(source, out)
    assert failed == {}
    assert {line["document"] for line in lines} == {"z.pdf"}
    assert (out / "b.pdf.md").exists()
    assert (out / "z.pdf" / "page-0001.md").exists()


def refusing(monkeypatch: pytest.MonkeyPatch, part: str, code: int) -> None:
    """Opening files whose paths hold `part` for writing fails."""
    import sooner.storage.local as local

    replacing = local.replacing

    def fail(path: Path) -> Any:
        if part in str(path):
            raise OSError(code, os.strerror(code))
        return replacing(path)

    monkeypatch.setattr(local, "replacing", fail)


def test_a_folder_that_may_not_be_written_fails_its_document_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = documents(tmp_path / "in", "z.pdf"), tmp_path / "out"
    with monkeypatch.context() as patch:
        refusing(patch, "/b.pdf/", errno.EACCES)
        failed, lines = outcome(source, out)
        assert [*failed] == [("b.pdf", 0)]
        assert len(lines) == 5
        assert "ermission denied" in failed["b.pdf", 0]
        failed, lines = outcome(source, out)
        assert [*failed] == [("b.pdf", 0)]
        assert len(lines) == 1
    parser = run(source, out, SayNumber())
    assert parser.report == []
    assert (out / "b.pdf" / "page-0002.md").exists()
    assert all(line["status"] != FAILED for line in records(out).values())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_takes_nothing_more_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    source, out = documents(tmp_path / "in", "z.pdf"), tmp_path / "out"
    with monkeypatch.context() as patch:
        refusing(patch, "/b.pdf/", code)
        with pytest.raises(StorageError, match="goes on from there"):
            job(source, out, SayNumber()).run(EchoParser)
    assert run(source, out, SayNumber()).report == [1, 2, 1, 2]
