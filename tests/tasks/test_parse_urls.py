"""Documents behind URLs are parsed as those of a folder are; one that is gone has failed."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path

import pytest

from sooner.documents import find_documents
from sooner.storage import open_store
from sooner.tasks.parse import Delivery, ParseJob, ParseOutput
from tasks.drafting import EchoParser, SayNumber
from tasks.parse_jobs import SMALL
from tasks.parse_workers import FORMATS, outputs, tree, work


@pytest.fixture
def temp_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files lie."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def copied(source: Path) -> str:
    """The files of a folder, behind a URL."""
    url = f"memory://{uuid.uuid4().hex}/in"
    store = open_store(url)
    for path in source.rglob("*"):
        if path.is_file():
            store.write(path.relative_to(source).as_posix(), path.read_bytes())
    return url


def parse(url: str, out: Path | str, parser: EchoParser | None = None) -> ParseJob:
    output = ParseOutput(Delivery(out, FORMATS), "s", SMALL)
    parse_job = ParseJob(documents=find_documents([url]), output=output, drafter=SayNumber())
    parse_job.run(lambda: parser or EchoParser())
    return parse_job


@pytest.mark.parametrize("is_remote", [False, True])
def test_results_are_those_of_a_folder_but_for_where_it_was(
    is_remote: bool, tmp_path: Path, temp_dir: Path
) -> None:
    source = tree(tmp_path / "in", documents=2, pages=2)
    work(source, tmp_path / "alone", 0.0)
    url = copied(source)
    out = f"memory://{uuid.uuid4().hex}" if is_remote else tmp_path / "out"
    seen: list[list[str]] = []

    class Looks(EchoParser):
        def __call__(self, page, draft=None):
            seen.append(
                [name for _, _, names in os.walk(temp_dir) for name in names if ".p" in name]
            )
            return super().__call__(page, draft)

    assert parse(url, out, Looks()).counts.failed == 0
    assert all(len(names) <= 3 for names in seen)  # as many as are read ahead
    assert list(temp_dir.iterdir()) == []
    ours, expected = outputs(out), outputs(tmp_path / "alone")
    assert ours.keys() == expected.keys()
    for name in ours:
        if name != "manifest.jsonl":
            assert ours[name] == expected[name]
    assert f'"source": "memory:///{url[9:]}/0.pdf"'.encode() in ours["manifest.jsonl"]
    again = EchoParser()
    parse(url, out, again)
    assert again.report == []


def test_a_file_called_as_a_document_is_not_compared_with_what_is_elsewhere(tmp_path: Path) -> None:
    url, out = copied(tree(tmp_path / "in", documents=1, pages=1)), tmp_path / "out"
    out.mkdir()
    (out / "0.pdf").write_text("another file")
    assert parse(url, out).counts.failed == 1


def test_a_document_that_is_gone_has_failed(tmp_path: Path, temp_dir: Path) -> None:
    url = copied(tree(tmp_path / "in", documents=2, pages=2))
    documents = find_documents([url])
    store = open_store(url)
    body = store.read("0.pdf")
    store.remove("0.pdf")
    store.remove("sub/again.pdf")
    output = ParseOutput(Delivery(tmp_path / "out", FORMATS), "s", SMALL)
    parse_job = ParseJob(documents=documents, output=output, drafter=SayNumber())
    parse_job.run(EchoParser)
    assert (parse_job.counts.failed, parse_job.counts.done) == (2, 3 + 1)
    line = next(
        line
        for line in (tmp_path / "out/manifest.jsonl").read_text().splitlines()
        if "0.pdf" in line
    )
    assert "0.pdf' does not exist" in line
    assert '"status": "FAILED"' in line
    assert list(temp_dir.iterdir()) == []
    store.write("0.pdf", body)
    assert parse(url, tmp_path / "out").counts.failed == 0
    assert (tmp_path / "out/0.pdf.md").read_text() == "number 1\n\nnumber 2\n"
