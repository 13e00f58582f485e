"""Documents to a folder of results, without a model: what is kept, skipped, and told."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from documents.paper import without_pages
from sooner.cli.parse_display import known
from sooner.documents import PageDraft, PageRange, Resolution, find_documents, read_pages
from sooner.documents.drafters import AllOf, FirstOf, PageDrafter, TextLayer, guarded
from sooner.errors import MemoryRanOutError, SoonerError
from sooner.tasks.parse import FAILED, Delivery, ParseJob
from sooner.tasks.parse.drafters import drafter_hash, guard, make_drafter, processes_of
from sooner.tasks.parse.job import DeviceFaultError
from sooner.tasks.parse.output import NAME as LOCK
from sooner.tasks.parse.output import OutputError, write_whole
from sooner.tasks.parse.plan import NAME, Intake, Manifest
from sooner.tasks.parse.prefetch import ahead
from sooner.tasks.parse.result import Counts
from tasks.drafting import Die, EchoParser, Hang, Raise, SayNumber, pdf, picture

SMALL = Intake(resolution=Resolution(dpi=72))


def job(source: Path, out: Path, drafter: PageDrafter | None = None, **options: Any) -> ParseJob:
    given = {"settings_hash": "s", "intake": SMALL, "delivery": Delivery(out, ("md", "json"))}
    return ParseJob(find_documents([source]), drafter=drafter, **{**given, **options})


def run(source: Path, out: Path, drafter: PageDrafter | None = None, **options: Any) -> EchoParser:
    """A run of its own; the parser tells for which pages it was needed."""
    parser = EchoParser(options.pop("raising", None))
    job(source, out, drafter, **options).run(lambda: parser)
    return parser


def records(out: Path) -> dict[tuple[str, int], dict]:
    lines = (out / NAME).read_text().splitlines()
    found = {(one["document"], one["page"]): one for one in map(json.loads, lines)}
    assert len(found) == len(lines)  # one line a page
    return found


def listing(folder: Path) -> list[str]:
    """Files of a folder, without that of its lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
    return sorted(str(path.relative_to(folder)) for path in files)


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
        for suffix in ("html", "json", "md", "png")
    ]
    documents = [
        f"{name}.{suffix}"
        for name in ("paper.png", "sub/paper.pdf")
        for suffix in ("html", "json", "md")
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
    assert (out / "sub/paper.pdf.html").read_text().count("<p>number ") == 2
    with Image.open(out / "sub/paper.pdf/page-0001.png") as drawn:
        assert drawn.size == (60, 40)
        assert len(drawn.convert("RGB").getcolors(5000)) > 2  # a box in colour
    record = records(out)["sub/paper.pdf", 2]
    assert record["status"] == "SUCCESS"
    assert set(record["files"]) == {name for name in pages if "paper.pdf/page-0002" in name}
    assert {"drafter", "wait", "e2e"} <= set(record["seconds"])
    assert len(record["input_hash"]) == 64


def test_what_a_model_says_is_not_run_as_html(tree: Path, tmp_path: Path) -> None:
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


def test_a_second_run_skips_what_is_done(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(tree, out).told == [1, 1, 2]
    before = {name: (out / name).stat().st_mtime_ns for name in listing(out)}
    again = job(tree, out)
    again.run(lambda: pytest.fail("no model is needed"))
    assert (again.counts.total, again.counts.before) == (0, 3)
    assert {name: (out / name).stat().st_mtime_ns for name in listing(out)} == before
    assert run(tree, out, fresh=True).told == [1, 1, 2]
    assert run(tree, out, settings_hash="other").told == [1, 1, 2]
    assert len(records(out)) == 3
    (out / "sub/paper.pdf/page-0002.md").unlink()
    assert run(tree, out, settings_hash="other").told == [2]
    pdf(tree / "sub" / "paper.pdf", 1)  # another content, and fewer pages
    assert run(tree, out, settings_hash="other").told == [1]
    assert sorted(records(out)) == [("paper.png", 1), ("sub/paper.pdf", 1)]
    (out / "paper.png.md").unlink()
    assert run(tree, out, settings_hash="other").told == []
    assert (out / "paper.png.md").read_text() == "nothing drafted\n"


def test_pages_of_several_runs_make_one_document(tmp_path: Path) -> None:
    source, out = pdf(tmp_path / "a.pdf", 4), tmp_path / "out"
    some = Intake(PageRange.parse("3-4"), SMALL.resolution)
    assert run(source, out, SayNumber(), intake=some).told == [3, 4]
    assert (out / "a.pdf.md").read_text() == "number 3\n\nnumber 4\n"
    assert run(source, out, SayNumber()).told == [1, 2]
    text = (out / "a.pdf.md").read_text()
    assert text == "number 1\n\nnumber 2\n\nnumber 3\n\nnumber 4\n"


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
    told: list[dict] = []
    first = job(mixed, out, SayNumber(), on_page=lambda record, counts: told.append(record))
    counts = first.run(EchoParser)
    assert (counts.done, counts.failed, counts.total) == (2, 4, 6)
    reasons = {name: one["reason"] for (name, _), one in records(out).items()}
    assert "encrypted" in reasons["b-locked.pdf"]
    assert "truncated" in reasons["c-cut.pdf"]
    assert "empty" in reasons["d-empty.pdf"]
    assert "1 x 1 px" in reasons["e-dot.png"]
    assert all("\n" not in reason for reason in reasons.values())
    assert reasons["a-good.pdf"] == reasons["f-good.png"] == ""
    assert [one["status"] for one in told] == ["SUCCESS", *[FAILED] * 4, "SUCCESS"]
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
    picture(root / "long.png", 20_000, 10)
    without_pages(root / "zero.pdf")

    class SeeNothing(SayNumber):
        def __call__(self, page: Any) -> Any:
            return PageDraft([], 0.0, self.name, page.size, "no text found on the page")

    counts = job(root, out, SeeNothing()).run(EchoParser)
    assert (counts.done, counts.failed) == (1, 3)
    found = {name: one for (name, _), one in records(out).items()}
    assert found["blank.png"]["notes"] == ["no text found on the page"]
    reasons = {name: one["reason"] for name, one in found.items() if one["status"] == FAILED}
    assert reasons == {
        "dot.png": "is 1 x 1 px, too small to hold text (at least 8 px a side)",
        "long.png": "is 20000 x 10 px, more than 16000 px a side",
        "zero.pdf": "has no pages",
    }


def test_the_run_may_stop_at_the_first_failure(mixed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(SoonerError, match=r"b-locked.pdf': is encrypted"):
        run(mixed, out, stop_on_error=True)
    assert [name for name, _ in records(out)] == ["a-good.pdf", "b-locked.pdf"]


def test_pages_that_are_not_there_are_told(tmp_path: Path) -> None:
    source, out = pdf(tmp_path / "a.pdf", 2), tmp_path / "out"
    beyond = Intake(PageRange.parse("2-5"), SMALL.resolution)
    for _ in range(2):
        counts = job(source, out, intake=beyond).run(EchoParser)
        assert counts.failed == 1
        assert records(out)["a.pdf", 0]["reason"] == "has 2 pages, not page 3-5"
    run(source, out)
    assert sorted(page for _, page in records(out)) == [1, 2]


@pytest.mark.parametrize("error", [SoonerError("the page is too large"), RuntimeError("a\nb")])
def test_a_page_that_fails_does_not_stop_the_others(tmp_path: Path, error: Exception) -> None:
    source, out = pdf(tmp_path / "a.pdf", 3), tmp_path / "out"
    assert run(source, out, raising={2: error}).told == [1, 2, 3]
    found = records(out)
    assert [one["status"] for one in found.values()] == ["SUCCESS", FAILED, "SUCCESS"]
    expected = "RuntimeError: a b" if isinstance(error, RuntimeError) else "the page is too large"
    assert found["a.pdf", 2]["reason"] == expected
    whole = json.loads((out / "a.pdf.json").read_text())
    assert whole["status"] == "PARTIAL"
    assert whole["failed"] == [{"page": 2, "reason": expected}]
    assert run(source, out).told == [2]
    assert json.loads((out / "a.pdf.json").read_text())["status"] == "SUCCESS"


def test_a_broken_device_stops_the_run(tmp_path: Path) -> None:
    """Every later page would fail the same way; they are left for the next run instead."""
    source, out = pdf(tmp_path / "a.pdf", 4), tmp_path / "out"
    fault = torch.AcceleratorError("CUDA error: device-side assert triggered\nCompile with ...")
    parser = EchoParser({2: fault})
    with pytest.raises(DeviceFaultError) as caught:
        job(source, out).run(lambda: parser)
    assert parser.told == [1, 2]
    told = str(caught.value)
    assert "\n" not in told
    assert re.search(r"a.pdf', page 2: AcceleratorError: CUDA error: device-side assert", told)
    assert told.endswith("what is finished is kept, the same command goes on there")
    found = records(out)
    assert [(page, one["status"]) for (_, page), one in found.items()] == [
        (1, "SUCCESS"), (2, FAILED),
    ]  # fmt: skip
    assert (out / "a.pdf/page-0001.md").is_file()
    assert run(source, out).told == [2, 3, 4]
    assert len(records(out)) == 4


def test_running_out_of_memory_is_a_page_s_own_failure(tmp_path: Path) -> None:
    source, out = pdf(tmp_path / "a.pdf", 3), tmp_path / "out"
    error = MemoryRanOutError("memory ran out, even at 35% of the page's width")
    assert run(source, out, raising={2: error}).told == [1, 2, 3]
    assert [one["status"] for one in records(out).values()] == ["SUCCESS", FAILED, "SUCCESS"]


def test_thousands_of_documents_begin_with_the_first_page(tmp_path: Path) -> None:
    """None is hashed or opened before its turn: three at most are, when the first page is done."""
    root, out, count = tmp_path / "in", tmp_path / "out", 10_000
    root.mkdir()
    picture(root / "0.png")
    for number in range(1, count):
        os.link(root / "0.png", root / f"{number}.png")
    opened: set[str] = set()
    is_watched = [True]

    def watch(event: str, arguments: tuple) -> None:
        if is_watched[0] and event == "open" and str(arguments[0]).startswith(str(root)):
            opened.add(str(arguments[0]))

    class Stop(EchoParser):
        def __call__(self, page: Any, draft: Any = None) -> Any:
            is_watched[0] = False
            raise KeyboardInterrupt

    sys.addaudithook(watch)  # can't be taken away again
    asked = job(root, out)
    with pytest.raises(KeyboardInterrupt):
        asked.run(Stop)
    assert str(root / "0.png") in opened
    assert len(opened) <= 3
    assert asked.counts.opened <= 3
    assert asked.counts.documents == count


def test_the_total_is_an_estimate_until_all_is_opened() -> None:
    counts = Counts(total=6, documents=4, opened=2, done=3, seconds=1.5)
    assert counts.expected == 12
    assert counts.seconds_left == pytest.approx(4.5)
    assert known(counts) == "6+"
    whole = Counts(total=6, documents=2, opened=2, done=6, seconds=1.5)
    assert (whole.expected, whole.seconds_left, known(whole)) == (6, 0, "6")


def test_unexpected_errors_get_through_when_debugging(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="bug"):
        run(
            pdf(tmp_path / "a.pdf", 1),
            tmp_path / "out",
            raising={1: RuntimeError("bug")},
            debug=True,
        )


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    source, out = pdf(tmp_path / "a.pdf", 3), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(source, out, SayNumber(), raising={2: KeyboardInterrupt()})
    for thread in [one for one in threading.enumerate() if one.name.startswith("pages-")]:
        thread.join(30)
        assert not thread.is_alive()
    assert run(source, out).told == [2, 3]


def test_a_drafter_that_hangs_leaves_plain_decoding(tmp_path: Path) -> None:
    hang, out = Hang(), tmp_path / "out"
    run(pdf(tmp_path / "a.pdf", 2), out, guarded(hang, timeout=0.3))
    hang.released.set()
    texts = [one["notes"] for one in records(out).values()]
    assert texts == [[], ["no answer within 0.3 s"]]
    assert (out / "a.pdf.md").read_text() == "number 1\n\nnothing drafted\n"


def test_a_drafter_that_raises_leaves_plain_decoding(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(pdf(tmp_path / "a.pdf", 3), out, guarded(Raise(), timeout=30))
    assert (out / "a.pdf.md").read_text() == "number 1\n\nnothing drafted\n\nnumber 3\n"
    assert records(out)["a.pdf", 2]["notes"] == ["failed with RuntimeError: out of ink"]


def test_a_drafter_that_kills_its_process_leaves_plain_decoding(tmp_path: Path) -> None:
    out, drafter = tmp_path / "out", guarded(Die(), timeout=60, process=True)
    try:
        run(pdf(tmp_path / "a.pdf", 3), out, drafter)
    finally:
        drafter.close()
    assert (out / "a.pdf.md").read_text() == "number 1\n\nnothing drafted\n\nnumber 3\n"
    assert "exit code 7" in records(out)["a.pdf", 2]["notes"][0]


def test_the_next_page_is_drafted_while_this_one_is_verified(tmp_path: Path) -> None:
    begun = [threading.Event() for _ in range(5)]
    started: list[int] = []

    class Watched(SayNumber):
        def __call__(self, page: Any) -> Any:
            started.append(page.number)
            begun[page.number].set()
            return super().__call__(page)

    class Waiting(EchoParser):
        def __call__(self, page: Any, draft: Any = None) -> Any:
            if page.number < 4:
                assert begun[page.number + 1].wait(30), "the next page is not drafted meanwhile"
            assert len(started) <= page.number + 1  # one ahead, and no more
            return super().__call__(page, draft)

    parser = Waiting()
    source = pdf(tmp_path / "a.pdf", 4)
    counts = job(source, tmp_path / "out", Watched(), debug=True).run(lambda: parser)
    assert parser.told == started == [1, 2, 3, 4]
    assert counts.done == 4


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
            assert callable(draft)
            parsed = super().__call__(page, draft)
            with lock:
                finished[0] += 1
            return parsed

    counts = job(source, out, Uneven(), workers=workers, debug=True).run(Checked)
    assert (counts.done, counts.failed) == (9, 0)
    wanted = [f"number {number}\n" for number in range(1, 10)]
    assert (out / "a.pdf.md").read_text() == "\n".join(wanted)
    assert [page for _, page in records(out)] == list(range(1, 10))


def test_a_page_is_begun_before_its_draft_is_there(tmp_path: Path) -> None:
    begun = threading.Event()

    class Late(SayNumber):
        def __call__(self, page: Any) -> Any:
            assert begun.wait(30), "the parser was not called"
            return super().__call__(page)

    class Eager(EchoParser):
        def __call__(self, page: Any, draft: Any = None) -> Any:
            begun.set()
            return super().__call__(page, draft)

    job(pdf(tmp_path / "a.pdf", 2), tmp_path / "out", Late(), debug=True).run(Eager)
    assert (tmp_path / "out" / "a.pdf.md").read_text() == "number 1\n\nnumber 2\n"


def test_errors_of_the_other_thread_come_out(tmp_path: Path) -> None:
    pages = ((None, page) for page in read_pages(pdf(tmp_path / "a.pdf", 3)))
    drafted = ahead(pages, Raise())
    assert next(drafted).draft().texts == ["number 1"]
    second = next(drafted)
    assert second.page.number == 2
    with pytest.raises(RuntimeError, match="out of ink"):
        second.draft()
    assert next(drafted).draft().texts == ["number 3"]
    assert next(drafted, None) is None


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = pdf(tmp_path / "a.pdf", 3), tmp_path / "out"
    sync, calls = os.fsync, [0]

    def full(handle: int) -> None:
        calls[0] += 1
        if calls[0] > 5:  # two files and a line a page
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            OutputError, match=r"can't be written: No space left on device; what is"
        ):
            run(source, out, SayNumber(), delivery=Delivery(out, ("md", "json"), overlay=False))
    left = listing(out)
    assert not [name for name in left if name.endswith(".part")]
    assert sorted(records(out)) == [("a.pdf", 1)]
    assert "a.pdf.md" not in left
    later = run(source, out, SayNumber(), delivery=Delivery(out, ("md", "json"), overlay=False))
    assert later.told == [2, 3]
    assert (out / "a.pdf.md").read_text() == "number 1\n\nnumber 2\n\nnumber 3\n"


def test_a_file_keeps_its_old_content_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    write_whole(path, [b"old"])

    def broken() -> Any:
        yield b"new"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError):
        write_whole(path, broken())
    assert listing(tmp_path) == ["a.md"]
    assert path.read_bytes() == b"old"


SCRIPT = """
import sys, time
from pathlib import Path
from tasks.drafting import EchoParser
from tasks.test_parse_job import job

class Slow(EchoParser):
    def __call__(self, page, draft=None):
        if page.number == 3:
            print("at page 3", flush=True)
            time.sleep(600)
        return super().__call__(page, draft)

job(Path(sys.argv[1]), Path(sys.argv[2])).run(Slow)
"""


def test_a_run_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    source, out = pdf(tmp_path / "a.pdf", 4), tmp_path / "out"
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    killed = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(source), str(out)],
        stdout=subprocess.PIPE, env=environment, text=True,
    )  # fmt: skip
    assert killed.stdout is not None
    assert killed.stdout.readline() == "at page 3\n"
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    assert sorted(page for _, page in records(out)) == [1, 2]
    kept = (out / "a.pdf/page-0002.md").stat().st_mtime_ns
    with open(out / NAME, "ab") as file:
        file.write(b'{"document": "a.pdf", "page": 3, "stat')  # as a crash might leave it
    (out / "a.pdf" / "page-0003.md").write_text("half")
    (out / "a.pdf" / ".page-0004.md.part").write_text("hal")
    assert run(source, out).told == [3, 4]
    assert (out / "a.pdf/page-0002.md").stat().st_mtime_ns == kept
    assert sorted(page for _, page in records(out)) == [1, 2, 3, 4]
    assert not [name for name in listing(out) if name.endswith(".part")]
    assert (out / "a.pdf.md").read_text() == "\n".join(["nothing drafted\n"] * 4)


def test_manifests_keep_the_last_word(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    line = {"document": "a.pdf", "page": 1, "input_hash": "i", "settings_hash": "s"}
    manifest.add({**line, "status": FAILED})
    manifest.add({**line, "status": "SUCCESS"})
    (tmp_path / NAME).open("a").write("no json\n[1]\n")
    again = Manifest(tmp_path)
    assert [one["status"] for one in again.current(Path("a.pdf"), "i", "s")] == ["SUCCESS"]
    assert again.current(Path("a.pdf"), "i", "t") == []
    again.tidy()
    assert len((tmp_path / NAME).read_text().splitlines()) == 1


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match="can't be written"):
        job(pdf(tmp_path / "a.pdf"), tmp_path / "out")


def test_results_in_place_of_a_document_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"which is a file; choose another folder with -o"):
        job(pdf(tmp_path / "a.pdf"), tmp_path)
    assert listing(tmp_path) == ["a.pdf"]


def test_drafters_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    assert make_drafter("none") is None
    assert isinstance(make_drafter("text-layer"), TextLayer)
    assert isinstance(make_drafter("auto"), FirstOf)
    both = make_drafter(f"ocr, text:{tmp_path / 'a.txt'}")
    assert isinstance(both, AllOf)
    assert both.name == "ocr+plain-text"
    page = next(iter(read_pages(pdf(tmp_path / "a.pdf"))))
    assert make_drafter(f"text:{tmp_path / 'a.txt'}")(page).texts == ["text"]
    for spec, told in {
        "ocrr": "did you mean 'ocr'",
        "ocr,none": "'none' drafts nothing",
        "saved:": "needs a file or a folder",
        "saved:nowhere": "does not exist",
    }.items():
        with pytest.raises(SoonerError, match=told):
            make_drafter(spec)


def test_ocr_has_a_process_of_its_own(tmp_path: Path) -> None:
    kinds = {spec: type(guard(SayNumber(), spec)).__name__ for spec in ("ocr", "text-layer,auto")}
    assert set(kinds.values()) == {"GuardedProcess"}
    assert type(guard(SayNumber(), "text-layer")).__name__ == "GuardedThread"
    assert guard(None, "none") is None
    assert type(guard(SayNumber(), "ocr", workers=0)).__name__ == "GuardedThread"
    assert type(guard(SayNumber(), "ocr", workers=2)).__name__ == "GuardedProcesses"
    several = guard(SayNumber(), "ocr", workers=2)
    assert [processes_of(one) for one in (None, guard(SayNumber(), "ocr"), several)] == [0, 1, 2]
    with pytest.raises(SoonerError, match="workers is -1"):
        guard(SayNumber(), "ocr", workers=-1)


def test_drafts_from_changed_files_are_other_drafts(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    first = drafter_hash(f"ocr,text:{file}")
    file.write_text("two")
    assert drafter_hash(f"ocr,text:{file}") != first
    assert drafter_hash("ocr") == "ocr"
