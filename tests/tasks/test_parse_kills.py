"""Workers that are killed two hundred times, and pages that kill them: the same results."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from sooner.storage import open_store
from sooner.tasks.parse.delivery import ASIDE, DOCUMENTS, NAME, PAGES
from storage.s3_server import S3Server
from tasks.drafting import EchoParser, SayNumber
from tasks.parse_deaths import DEATHS, work_and_die
from tasks.parse_jobs import job
from tasks.parse_workers import PROCESSES, begin, outputs, tree

pytestmark = pytest.mark.slow


@dataclass
class Worker:
    """A process that parses; `report` says when its run begins."""

    process: BaseProcess
    report: Connection

    def is_at_work(self) -> bool:
        """Whether it is, once it has begun; it may have ended before."""
        if not self.report.closed:
            wait([self.report, self.process.sentinel])
            with suppress(EOFError):
                self.report.recv_bytes()
            self.report.close()
        return self.process.is_alive()

    def kill(self) -> None:
        self.process.kill()
        self.process.join(60)


def start(source: Path, out: Path | str, deaths: int = DEATHS) -> Worker:
    receiver, telling = PROCESSES.Pipe(duplex=False)
    process = begin(work_and_die, source, out, deaths, telling)
    telling.close()
    return Worker(process, receiver)


def until_done(source: Path, out: Path | str, deaths: int = DEATHS) -> int:
    """Start a worker again and again until it ends by itself; returns how often it died."""
    for died in range(4 * deaths):
        worker = begin(work_and_die, source, out, deaths)
        worker.join(120)
        if worker.exitcode == 0:
            return died
        assert worker.exitcode == -signal.SIGKILL
    raise AssertionError("a page kills for ever")


def kill_at_random(
    source: Path, out: Path | str, kills: int, seed: int, deaths: int = DEATHS, workers: int = 3
) -> None:
    """Kill so many workers, each after its run began and before it ended. Where all is done, half
    of the pages are taken away, so that there is something to be done."""
    chance, hit = random.Random(seed), 0
    running = [start(source, out, deaths) for _ in range(workers)]
    while True:
        victim = chance.choice(running)
        if victim.is_at_work():
            victim.process.join(chance.random() * 0.2)
            hit += victim.process.is_alive()
            victim.kill()
        if hit == kills:
            break
        if any(worker.process.exitcode == 0 for worker in running):
            for worker in running:
                worker.kill()
            forget_half(out, chance)
        for place, worker in enumerate(running):  # also those whose page killed them
            if not worker.process.is_alive():
                running[place] = start(source, out, deaths)
    for worker in running:
        worker.process.join(120)
        assert worker.process.exitcode in (0, -signal.SIGKILL)
    until_done(source, out, deaths)


def forget_half(out: Path | str, chance: random.Random) -> None:
    """Take away half of the pages that a worker parsed, and what is known of documents' files."""
    store = open_store(out)
    pages = sorted(info.name for info in store.names(f"{PAGES}/"))
    for name in pages:
        if not name.endswith(ASIDE) and chance.random() < 0.5:
            store.remove(name)
    for entry in [*store.names(f"{DOCUMENTS}/")]:
        store.remove(entry.name)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree(tmp_path_factory.mktemp("source") / "in", documents=4, pages=6)


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one worker makes of `source`, whom nobody kills but two pages."""
    out = tmp_path_factory.mktemp("alone") / "out"
    assert until_done(source, out) == 2 * DEATHS
    contents = outputs(out)
    assert contents[NAME].count(b"processes died at it") >= 2
    assert until_done(source, out) == 0
    return contents


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Any:
    if request.param == "local":
        yield tmp_path / "out"
        return
    from sooner.storage.urls import file_system

    server = S3Server()
    server.into_environment(monkeypatch)
    file_system("s3://kills")[0].call_s3("create_bucket", Bucket="kills")
    yield "s3://kills/some/out"
    server.stop()


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_kills_change_nothing(place: Path, source: Path, undisturbed: dict[str, bytes]) -> None:
    kill_at_random(source, place, 8, 8)
    assert outputs(place) == undisturbed


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_kills_change_nothing_at_a_url(place: str, tmp_path: Path) -> None:
    source, alone = tree(tmp_path / "in", documents=1, pages=3), tmp_path / "alone"
    assert until_done(source, alone, 3) == 3
    kill_at_random(source, place, 2, 2, deaths=3, workers=2)
    assert outputs(place) == outputs(alone)


@pytest.mark.soak
@pytest.mark.parametrize("place", ["local", "s3"], indirect=True)
def test_two_hundred_kills_of_several_workers_change_nothing(
    place: Path | str, source: Path, tmp_path: Path
) -> None:
    """Pages die at random, too: more of it than a page that kills takes to be set aside."""
    alone, deaths = tmp_path / "alone", 20
    assert until_done(source, alone, deaths) == 2 * deaths
    began = time.perf_counter()
    kill_at_random(source, place, 200, 5, deaths)
    print(f"200 kills in {time.perf_counter() - began:.0f} s")
    assert outputs(place) == outputs(alone)


def test_what_killed_writers_left_goes_after_a_day(source: Path, tmp_path: Path) -> None:
    old, new = (tmp_path / "0.pdf" / f".sooner-{name}.part" for name in ("old", "new"))
    old.parent.mkdir()
    for left in (old, new):
        left.write_bytes(b"torn")
    os.utime(old, (time.time() - 90_000,) * 2)
    job(source / "1.pdf", tmp_path, SayNumber()).run(EchoParser)
    assert (old.exists(), new.exists()) == (False, True)
