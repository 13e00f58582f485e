"""Documents to a folder of results, without a model: what is kept, skipped, and told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sooner.documents import PageRange
from sooner.storage import StorageError
from sooner.tasks.parse import Delivery
from sooner.tasks.parse.delivery import NAME
from sooner.tasks.parse.output import Intake
from tasks.drafting import EchoParser, SayNumber, pdf, picture
from tasks.parse_jobs import SMALL, job, listing, records, run


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    (root / "sub").mkdir(parents=True)
    pdf(root / "sub" / "paper.pdf", 2)
    picture(root / "paper.png")
    return root


def test_outputs_mirror_the_inputs(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tree, out, SayNumber(), delivery=Delivery(out))
    pages = [
        f"{name}/page-{number:04d}.{suffix}"
        for name, count in (("paper.png", 1), ("sub/paper.pdf", 2))
        for number in range(1, count + 1)
        for suffix in ("json", "md")
    ]
    documents = [
        f"{name}.{suffix}" for name in ("paper.png", "sub/paper.pdf") for suffix in ("json", "md")
    ]
    assert listing(out) == sorted([*pages, *documents, NAME])
    assert (out / "sub/paper.pdf.md").read_text() == "number 1\n\nnumber 2\n"
    assert (out / "sub/paper.pdf/page-0002.md").read_text() == "number 2\n"
    whole = json.loads((out / "sub/paper.pdf.json").read_text())
    assert (whole["source"], whole["status"]) == ("sub/paper.pdf", "SUCCESS")
    assert [page["number"] for page in whole["pages"]] == [1, 2]
    region = whole["pages"][1]["regions"][0]
    assert region["text"] == "number 2"
    assert region["bbox_1000"] == [10, 20, 90, 80]
    record = records(out)["sub/paper.pdf", 2]
    assert record["status"] == "SUCCESS"
    assert set(record["files"]) == {name for name in pages if "paper.pdf/page-0002" in name}
    assert {"read", "drafter", "wait", "e2e", "write"} <= set(record["seconds"])
    assert len(record["input_hash"]) == 64


def test_model_output_is_not_run_as_html(tree: Path, tmp_path: Path) -> None:
    class Script(EchoParser):
        def __call__(self, page: Any, draft: Any = None) -> Any:
            from dataclasses import replace

            parsed = super().__call__(page, draft)
            return replace(parsed, regions=[replace(parsed.regions[0], text="<script>x</script>")])

    out = tmp_path / "out"
    job(tree, out, delivery=Delivery(out, ("html",))).run(Script)
    text = (out / "paper.png.html").read_text()
    assert "<script>" not in text
    assert "default-src 'none'" in text


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(StorageError, match="is a file; name a folder"):
        job(pdf(tmp_path / "a.pdf"), tmp_path / "out")


def test_a_second_run_skips_what_is_done(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(tree, out).report == [1, 1, 2]
    before = {name: (out / name).stat().st_mtime_ns for name in listing(out) if name != NAME}
    again = job(tree, out)
    again.run(lambda: pytest.fail("no model is needed"))
    assert (again.counts.total, again.counts.before) == (0, 3)
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    assert run(tree, out, fresh=True).report == [1, 1, 2]
    assert run(tree, out, settings_hash="other").report == [1, 1, 2]
    assert len(records(out)) == 3
    (out / "sub/paper.pdf/page-0002.md").unlink()
    assert run(tree, out, settings_hash="other").report == []  # files are made of what was parsed
    assert listing(out) == sorted([*before, NAME])
    pdf(tree / "sub" / "paper.pdf", 1)  # another content, and fewer pages
    assert run(tree, out, settings_hash="other").report == [1]
    assert sorted(records(out)) == [("paper.png", 1), ("sub/paper.pdf", 1)]
    (out / "paper.png.md").unlink()
    assert run(tree, out, settings_hash="other").report == []
    assert (out / "paper.png.md").read_text() == "nothing drafted\n"


def test_pages_of_several_runs_make_one_document(tmp_path: Path) -> None:
    source, out = pdf(tmp_path / "a.pdf", 4), tmp_path / "out"
    some = Intake(PageRange.parse("3-4"), SMALL.resolution)
    assert run(source, out, SayNumber(), intake=some).report == [3, 4]
    assert (out / "a.pdf.md").read_text() == "number 3\n\nnumber 4\n"
    assert run(source, out, SayNumber()).report == [1, 2]
    text = (out / "a.pdf.md").read_text()
    assert text == "number 1\n\nnumber 2\n\nnumber 3\n\nnumber 4\n"
