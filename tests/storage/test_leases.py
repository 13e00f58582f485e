"""Leases: one owner at a time where the store refuses second creators, whatever the clocks say."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sooner.storage import Leases, MissingObjectError, ObjectInfo, Store, open_store
from sooner.storage import leases as leases_module
from sooner.storage.store import Data
from storage.s3_server import S3Server

EVERYWHERE = pytest.mark.parametrize("any_store", ["local", "memory", "s3"], indirect=True)


@EVERYWHERE
def test_an_owner_has_it_until_it_is_released(any_store: Store) -> None:
    first, two = Leases(any_store, "one", 30), Leases(any_store, "two", 30)
    assert first.holder("a/b") is None
    assert first.take("a/b")
    assert first.take("a/b")
    assert not two.take("a/b")
    assert two.take("a/c")
    assert (first.holds("a/b"), two.holds("a/b")) == (True, False)
    assert two.holder("a/b") == "one"
    assert first.renew("a/b")
    assert not two.renew("a/b")
    two.release("a/b")
    assert not two.take("a/b")
    first.release("a/b")
    assert two.holder("a/b") is None
    assert two.take("a/b")
    assert not first.take("a/b")
    for key in ("a/b", "a/c"):
        two.release(key)
    assert first.take("a/b")
    assert first.take("a/c")
    assert len(list(any_store.names(".sooner/leases/"))) == 2


@pytest.mark.slow
@EVERYWHERE
def test_of_many_takers_a_single_owner_gets_a_lease_that_is_over(any_store: Store) -> None:
    first = Leases(any_store, "dead", 2.0)  # a busy server of S3 answers six within that
    assert first.take("a")
    owners = [Leases(any_store, str(i), 30) for i in range(6)]
    assert _at_once([lambda owner=owner: owner.take("a") for owner in owners]) == [False] * 6
    time.sleep(2.1 + any_store.tick * 2)
    assert not first.holds("a")
    assert not first.renew("a")
    results = _at_once([lambda owner=owner: owner.take("a") for owner in owners])
    assert sorted(results) == [False] * 5 + [True]
    assert [owner.holds("a") for owner in owners] == results


class Turns:
    """Lets one of several threads go on at a time, in an order that is drawn; time is virtual."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = 1000.0
        self._waiting: dict[int, threading.Semaphore] = {}
        self._changed = threading.Condition()
        self._running = 0

    def wait(self) -> None:
        """A thread stands here until it is its turn."""
        mine = threading.Semaphore(0)
        with self._changed:
            self._waiting[threading.get_ident()] = mine
            self._running -= 1
            self._changed.notify_all()
        mine.acquire()

    def run(self, works: list[Callable[[], None]], look: Callable[[], None]) -> None:
        """Run all to their ends; `look` is called whenever all stand."""
        errors: list[BaseException] = []

        def guarded(work: Callable[[], None]) -> None:
            try:
                self.wait()
                work()
            except BaseException as error:
                errors.append(error)
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

        threads = [threading.Thread(target=guarded, args=(task,), daemon=True) for task in works]
        self._running = len(threads)
        for thread in threads:
            thread.start()
        chosen = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._running == 0)
                look()
                if not self._waiting:
                    break
                if self.random.random() < 0.3:
                    self.clock += self.random.choice([0.1, 1.0, 4.0, 11.0])
                # One goes on for a while, so that others act on what is long over.
                if chosen not in self._waiting or self.random.random() < 0.15:
                    chosen = self.random.choice(sorted(self._waiting))
                self._running += 1
                self._waiting.pop(chosen).release()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


class SteppedStore(Store):
    """Objects of a dictionary; each request waits for its turn before and after it."""

    tick = 0.0

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns, self.root = turns, "stepped"
        self.objects: dict[str, tuple[bytes, float]] = {}

    def read(self, name: str) -> bytes:
        self.turns.wait()
        if name not in self.objects:
            raise MissingObjectError(name)
        return self.objects[name][0]

    def write(self, name: str, data: Data) -> None:
        raise AssertionError("leases are created, never changed")

    def create(self, name: str, data: Data) -> bool:
        self.turns.wait()
        if name in self.objects:
            return False
        assert isinstance(data, bytes)
        self.objects[name] = data, self.turns.clock
        self.turns.wait()
        return True

    def exists(self, name: str) -> bool:
        self.turns.wait()
        return name in self.objects

    def remove(self, name: str) -> None:
        self.turns.wait()
        self.objects.pop(name, None)

    def names(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.turns.wait()
        infos = [
            ObjectInfo(name, len(data), modified)
            for name, (data, modified) in self.objects.items()
            if name.startswith(prefix)
        ]
        self.turns.wait()
        return iter(infos)

    def url(self, name: str = "") -> str:
        return name

    @property
    def can_create(self) -> bool:
        return True

    def _may_refuse(self) -> bool:
        return True

    def _server_time(self) -> float:
        return self.turns.clock

    def now(self) -> float:
        self.turns.wait()
        moment = self.turns.clock
        self.turns.wait()  # old when it is used
        return moment


def _interleaved(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """A random schedule of three owners and one key; returns how often it changed hands."""
    turns = Turns(seed)
    store = SteppedStore(turns)
    monkeypatch.setattr(leases_module, "passed", lambda: turns.clock)
    owners = [Leases(store, str(i), 10.0) for i in range(3)]
    hands: list[int] = []

    def look() -> None:
        holding = [
            i
            for i, owner in enumerate(owners)
            if any(turns.clock < lease.until for lease in owner._leases.values())
        ]
        assert len(holding) <= 1, f"seed {seed}: {holding} hold it at {turns.clock}"
        if holding and hands[-1:] != holding:
            hands.extend(holding)

    def work(i: int) -> None:
        draw = random.Random(seed * 31 + i)
        for _ in range(4):
            what = draw.choice(["take", "take", "take", "renew", "release"])
            getattr(owners[i], what)("k")

    turns.run([lambda i=i: work(i) for i in range(3)], look)
    return len(hands)


def test_two_never_hold_it_at_once_however_their_requests_mix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = [_interleaved(seed, monkeypatch) for seed in range(150)]
    assert sum(change > 1 for change in changes) > 50  # it did change hands


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_two_never_hold_it_at_once_in_thousands_of_schedules(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(1000 + 5000 * part, 6000 + 5000 * part):
        _interleaved(seed, monkeypatch)


OWNER = """
import json, os, random, sys, time
from sooner.storage import Leases, open_store
from sooner.storage.store import passed
place, options, owner, skew, stop = json.loads(sys.argv[1])
wall = time.time
time.time = lambda: wall() + skew * 3600  # this machine's clock is hours off
store, draw = open_store(place, **options), random.Random(owner)
leases = Leases(store, owner, 0.8)
session = 0
while not os.path.exists(stop):
    key = draw.choice("ab")
    if leases.take(key):
        session += 1
        for _ in range(draw.randrange(1, 30)):
            before = passed()
            if not leases.holds(key):
                break
            print(json.dumps([key, f"{owner} {session}", before]), flush=True)
            time.sleep(draw.uniform(0.0, 0.05))
            if draw.random() < 0.05 and not leases.renew(key):
                break
        if draw.random() < 0.7:
            leases.release(key)
    time.sleep(draw.uniform(0.0, 0.05))
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["local", "s3"])
def test_processes_with_clocks_hours_apart_hold_it_in_turn(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """They are stopped at random, longer than a lease lasts; one is killed."""
    place, options = str(tmp_path), {}
    if where == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        place, options = request.getfixturevalue("bucket"), server.options
    stop = tmp_path / "stop"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", OWNER, json.dumps([place, options, owner, skew, str(stop)])],
            stdout=subprocess.PIPE,
            text=True,
        )
        for owner, skew in [("one", 0), ("two", 9), ("three", -7)]
    ]
    lines: list[str] = []
    readers = [threading.Thread(target=_drain, args=(worker, lines)) for worker in workers]
    for reader in readers:
        reader.start()
    draw, began = random.Random(where), time.monotonic()
    try:
        while time.monotonic() - began < 120 and _sessions(lines) < 8:
            assert all(worker.poll() is None for worker in workers), "one ended by itself"
            time.sleep(draw.uniform(0.1, 0.4))
            stopped = draw.choice(workers)
            os.kill(stopped.pid, signal.SIGSTOP)
            time.sleep(draw.choice([0.05, 1.0]))
            os.kill(stopped.pid, signal.SIGCONT)
        workers[2].kill()
        time.sleep(1)
    finally:
        stop.touch()
        for reader in readers:
            reader.join()
        for worker in workers:
            worker.communicate()
    assert _sessions(lines) >= 8
    spans: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for key, session, at in map(json.loads, lines):
        spans[key][session].append(at)
    for key, sessions in spans.items():
        ordered = sorted((min(ats), max(ats), session) for session, ats in sessions.items())
        for (_, last, before), (first, _, after) in pairwise(ordered):
            assert last < first, f"{before} and {after} both had '{key}'"


def _drain(worker: subprocess.Popen[str], lines: list[str]) -> None:
    assert worker.stdout is not None
    for line in iter(worker.stdout.readline, ""):
        if line.endswith("]\n"):  # that of a killed one may be cut off
            lines.append(line)


def _sessions(lines: list[str]) -> int:
    return len({json.loads(line)[1] for line in list(lines)})


def _at_once(works: list[Callable[[], Any]]) -> list[Any]:
    results: list[Any] = [None] * len(works)
    begin = threading.Barrier(len(works))

    def run(i: int) -> None:
        begin.wait()
        results[i] = works[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_lease_of_a_process_of_this_machine_that_is_no_more_is_over(tmp_path: Path) -> None:
    """However long it would have lasted; and nothing is left of one whose work is done."""
    code = "import sys; from sooner.storage import Leases, open_store; "
    code += "assert Leases(open_store(sys.argv[1]), 'gone', 9e9).take('a/b')"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    leases, other = Leases(open_store(tmp_path), "here", 9e9), Leases(open_store(tmp_path), "x")
    assert leases.take("a/b")
    assert not other.take("a/b")
    leases.forget("a/b")
    assert [path for path in tmp_path.rglob("*") if "leases" in str(path)] == []
    assert other.take("a/b")
