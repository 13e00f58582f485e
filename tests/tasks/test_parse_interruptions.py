"""Runs that are interrupted, killed or out of disk space: what is finished is kept."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sooner.tasks.parse import FAILED, Delivery
from sooner.tasks.parse.output import OutputError, write_whole
from sooner.tasks.parse.plan import NAME, Manifest
from tasks.drafting import SayNumber, pdf
from tasks.parse_jobs import listing, records, run


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    source, out = pdf(tmp_path / "a.pdf", 3), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(source, out, SayNumber(), raising={2: KeyboardInterrupt()})
    for thread in [one for one in threading.enumerate() if one.name.startswith("pages-")]:
        thread.join(30)
        assert not thread.is_alive()
    assert run(source, out).told == [2, 3]


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
from tasks.parse_jobs import job

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
