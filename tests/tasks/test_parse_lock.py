"""One output folder, two processes: the second is refused by name, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sooner.tasks.parse.output import HOLDER, FolderLock, OutputError
from tasks.drafting import EchoParser, pdf
from tasks.parse_jobs import job, records, run

SCRIPT = """
import sys
from pathlib import Path
from sooner.errors import SoonerError
from tasks.drafting import EchoParser
from tasks.parse_jobs import job

class Waits(EchoParser):
    def __call__(self, page, draft=None):
        if page.number == 2:
            print("at page 2", flush=True)
            sys.stdin.readline()
        return super().__call__(page, draft)

try:
    job(Path(sys.argv[1]), Path(sys.argv[2])).run(Waits)
except SoonerError as error:
    print("refused:", error, flush=True)
    sys.exit(2)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return pdf(tmp_path / "a.pdf", 3)


def start(source: Path, out: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(source), str(out)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
    )  # fmt: skip


@pytest.fixture
def first(source: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of its second page."""
    process = start(source, tmp_path / "out")
    assert process.stdout is not None
    assert process.stdout.readline() == "at page 2\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_refused(
    source: Path, tmp_path: Path, first: subprocess.Popen[str]
) -> None:
    out = tmp_path / "out"
    second = start(source, out)
    told, _ = second.communicate(timeout=120)
    assert second.returncode == 2
    assert told == (
        f"refused: output '{out}' is in use by process {first.pid}; wait for its end, or choose "
        "another folder with -o\n"
    )
    with pytest.raises(OutputError, match=f"in use by process {first.pid};"):
        job(source, out).run(lambda: pytest.fail("nothing is loaded for that"))
    assert first.communicate("\n", timeout=120) == ("", None)
    assert first.returncode == 0
    assert sorted(page for _, page in records(out)) == [1, 2, 3]
    assert not (out / HOLDER).exists()
    assert run(source, out).told == []


def test_a_killed_process_leaves_the_folder_free(
    source: Path, tmp_path: Path, first: subprocess.Popen[str]
) -> None:
    out = tmp_path / "out"
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert (out / HOLDER).read_text() == str(first.pid)  # as it was left
    assert run(source, out).told == [2, 3]
    assert len((out / "manifest.jsonl").read_text().splitlines()) == 3


def test_what_another_process_finished_meanwhile_is_not_done_again(
    source: Path, tmp_path: Path
) -> None:
    """A run reads the manifest when it has the folder, not when it was planned."""
    out, parser = tmp_path / "out", EchoParser()
    planned = job(source, out)
    run(source, out)
    planned.run(lambda: parser)
    assert parser.told == []
    lines = (out / "manifest.jsonl").read_text().splitlines()
    assert [json.loads(line)["page"] for line in lines] == [1, 2, 3]


def test_the_folder_is_free_after_an_error(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(source, out, raising={2: KeyboardInterrupt()})
    with FolderLock(out), pytest.raises(OutputError, match="is in use by process"):
        FolderLock(out).__enter__()
    assert run(source, out).told == [2, 3]
