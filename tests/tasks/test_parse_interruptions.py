"""Runs that are interrupted, killed or out of disk space: what is finished is kept."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sooner.storage import StorageError
from sooner.tasks.parse import Delivery
from tasks.drafting import SayNumber, pdf
from tasks.parse_jobs import listing, records, run
from tasks.parse_workers import left_over


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever write is the first that fails, and with it every one behind."""
    source = pdf(tmp_path / "a.pdf", 2)
    sync, writes, allowed = os.fsync, [0], [1000]

    def full(handle: int) -> None:
        writes[0] += 1
        if writes[0] > allowed[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    def parsed(out: Path) -> list[int]:
        texts = Delivery(out, ("md", "json"))
        return run(source, out, SayNumber(), delivery=texts).report

    monkeypatch.setattr(os, "fsync", full)
    assert parsed(tmp_path / "whole") == [1, 2]
    whole = listing(tmp_path / "whole")
    for number in range(writes[0]):
        out = tmp_path / f"{number}"
        writes[0], allowed[0] = 0, number
        with pytest.raises(StorageError, match="can't be written: No space left on device; wh"):
            parsed(out)
        allowed[0] = 1000
        assert left_over(out) == []
        done = {int(path.stem) for path in out.glob(".sooner/pages/*/*/*.json")}
        assert parsed(out) == sorted({1, 2} - done)
        assert listing(out) == whole
        assert (out / "a.pdf.md").read_text() == "number 1\n\nnumber 2\n"
        assert sorted(records(out)) == [("a.pdf", 1), ("a.pdf", 2)]


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


@pytest.mark.slow
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
    assert sorted(int(path.stem) for path in out.glob(".sooner/pages/*/*/*.json")) == [1, 2]
    (out / "a.pdf" / "page-0003.md").write_text("half")
    (out / "a.pdf" / ".sooner-12ab.part").write_text("hal")
    assert run(source, out).report == [3, 4]
    assert sorted(page for _, page in records(out)) == [1, 2, 3, 4]
    assert (out / "a.pdf.md").read_text() == "\n".join(["nothing drafted\n"] * 4)
