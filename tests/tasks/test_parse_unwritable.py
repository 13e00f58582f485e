"""Documents whose results can't be written: each is FAILED in a line, and the others are parsed."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sooner.documents import PageDraft
from sooner.errors import SoonerError
from sooner.storage import LocalStore, StorageError
from sooner.tasks.parse import FAILED, Delivery
from sooner.tasks.parse.formats import FORMATS
from sooner.tasks.parse.plan import Intake
from sooner.tasks.parse.result import ParsedPage
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
    one = job(source, out, SayNumber(), on_page=lambda line, _: lines.append(line), **options)
    counts = one.run(EchoParser)
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


def test_a_name_may_have_line_ends(tmp_path: Path) -> None:
    source, out = documents(tmp_path / "in", "two\nlines.pdf"), tmp_path / "out"
    assert outcome(source, out)[0] == {}
    assert (out / "two\nlines.pdf.md").exists()


def test_a_name_is_shown_in_one_line_of_letters_that_can_be_printed() -> None:
    from sooner.cli.parse_display import page_line
    from sooner.tasks.parse.result import Counts

    record = {"document": f"two\nlines/{LATIN}", "page": 0, "status": FAILED, "reason": "no"}
    assert page_line(record, Counts()) == "[0/0] two\\nlines/caf\\udce9.pdf: FAILED, no"


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

    make_room = local._make_room

    def fail(path: Path) -> None:
        if part in str(path):
            raise OSError(code, os.strerror(code))
        make_room(path)

    monkeypatch.setattr(local, "_make_room", fail)


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
    assert parser.told == []
    assert (out / "b.pdf" / "page-0002.md").exists()
    assert all(line["status"] != FAILED for line in records(out).values())


def test_pages_whose_records_can_not_be_written_fail_and_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sooner.tasks.identity import sha256

    source, out = documents(tmp_path / "in", "z.pdf"), tmp_path / "out"
    with monkeypatch.context() as patch:
        refusing(patch, f"/pages/{sha256(source / 'b.pdf')}/", errno.EPERM)
        failed, _ = outcome(source, out)
        assert [*failed] == [("b.pdf", 1), ("b.pdf", 2)]
        assert (out / "z.pdf.md").exists()
        assert not (out / "b.pdf.md").exists()
    assert run(source, out, SayNumber()).told == [1, 2]
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
    assert run(source, out, SayNumber()).told == [1, 2, 1, 2]


class SaySurrogate:
    """A drafter whose text holds half a pair, as JSON of a model may."""

    name = "surrogate"

    def __call__(self, page: Any) -> PageDraft:
        draft = SayNumber()(page)
        regions = [replace(one, drafts=["half \ud83d a pair"]) for one in draft.regions]
        return replace(draft, regions=regions)


def test_text_that_is_no_unicode_is_mended(tmp_path: Path) -> None:
    source, out = documents(tmp_path / "in"), tmp_path / "out"
    delivery = Delivery(out, ("md", "json", "html", "olmocr"))
    counts = job(source, out, SaySurrogate(), delivery=delivery).run(EchoParser)
    assert (counts.done, counts.failed) == (2, 0)
    assert "half � a pair" in (out / "b.pdf.md").read_text(encoding="utf-8")
    text = json.loads((out / "b.pdf.json").read_bytes())["pages"][0]["regions"][0]["text"]
    assert text == "half � a pair"


def raising(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    monkeypatch.setitem(FORMATS, "md", replace(FORMATS["md"], **functions))


def test_a_page_that_can_not_be_put_into_a_file_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = documents(tmp_path / "in"), tmp_path / "out"

    def page(parsed: ParsedPage) -> bytes:
        if parsed.number == 1:
            raise ValueError("a box\nis NaN")
        return b"fine"

    with monkeypatch.context() as patch:
        raising(patch, page=page)
        failed, _ = outcome(source, out)
        assert failed == {("b.pdf", 1): "ValueError: a box is NaN"}
        with pytest.raises(ValueError, match="NaN"):
            job(source, out, SayNumber(), debug=True).run(EchoParser)
    assert run(source, out, SayNumber()).told == [1]


def test_a_document_that_can_not_be_put_into_a_file_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = documents(tmp_path / "in", "z.pdf"), tmp_path / "out"

    def document(pages: Any, told: dict[str, Any], furniture: bool = True) -> Any:
        if told["source"] == "b.pdf":
            raise ValueError("no such document")
        yield b"fine"

    with monkeypatch.context() as patch:
        raising(patch, document=document)
        for _ in range(2):
            failed, _ = outcome(source, out)
            assert failed == {("b.pdf", 0): "ValueError: no such document"}
        assert (out / "z.pdf.md").read_bytes() == b"fine"
    assert run(source, out, SayNumber()).told == []
    assert "number 1" in (out / "b.pdf.md").read_text()


def test_a_run_may_end_at_a_document_that_can_not_be_written(tmp_path: Path) -> None:
    source, out = documents(tmp_path / "in", LATIN), tmp_path / "out"
    with pytest.raises(SoonerError, match="rename it"):
        job(source, out, SayNumber(), stop_on_error=True).run(EchoParser)


def test_names_of_objects_are_unicode(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for call in (store.read, store.exists, store.remove, lambda name: store.write(name, b"")):
        with pytest.raises(StorageError, match="UTF-8"):
            call(LATIN)


def test_a_page_that_json_can_not_hold_fails_alone(tmp_path: Path) -> None:
    class Odd(EchoParser):
        def __call__(self, page: Any, draft: Any = None) -> ParsedPage:
            parsed = super().__call__(page, draft)
            return replace(parsed, stages={"page": object()}) if page.number == 1 else parsed

    source, out = documents(tmp_path / "in"), tmp_path / "out"
    one = job(source, out, SayNumber(), delivery=Delivery(out, ("md",)))
    counts = one.run(Odd)
    assert (counts.done, counts.failed) == (1, 1)
    assert records(out)["b.pdf", 1]["reason"].startswith("TypeError: ")
    assert run(source, out, SayNumber(), delivery=Delivery(out, ("md",))).told == [1]


def test_a_document_that_can_not_be_opened_by_surprise_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = documents(tmp_path / "in", "z.pdf"), tmp_path / "out"
    count = Intake.count

    def surprise(self: Intake, path: Path) -> int:
        if path.name == "b.pdf":
            raise OverflowError("Python int too large")
        return count(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(Intake, "count", surprise)
        failed, lines = outcome(source, out)
        assert failed == {("b.pdf", 0): "OverflowError: Python int too large"}
        assert len(lines) == 3
        with pytest.raises(OverflowError):
            job(source, out, SayNumber(), debug=True).run(EchoParser)
    assert run(source, out, SayNumber()).told == [1, 2]
    assert all(line["status"] != FAILED for line in records(out).values())
