"""Attempts that never ended are counted; those of the living, and of other machines, are not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sooner.storage import Attempts, Store, open_store

EVERYWHERE = pytest.mark.parametrize("any_store", ["local", "memory", "s3"], indirect=True)

DIES = """
import os, signal, sys
from sooner.storage import Attempts, open_store
Attempts(open_store(sys.argv[1])).begin(sys.argv[2], "worker")
os.kill(os.getpid(), signal.SIGKILL)
"""


def dies(folder: Path, key: str) -> None:
    assert subprocess.run([sys.executable, "-c", DIES, folder, key]).returncode == -signal.SIGKILL


@EVERYWHERE
def test_work_that_ends_leaves_nothing(any_store: Store) -> None:
    attempts = Attempts(any_store, maximum=1)
    attempt = attempts.begin("a/b", "one")
    assert len(list(any_store.names(".sooner/attempts/a~b."))) == 1
    assert attempts.count("a/b") == 0  # this process is alive
    attempts.end(attempt)
    assert list(any_store.names()) == []


@pytest.mark.slow
def test_deaths_are_counted_and_forgotten(tmp_path: Path) -> None:
    attempts = Attempts(open_store(tmp_path))
    for deaths in range(1, 4):
        dies(tmp_path, "d/000007")
        assert attempts.count("d/000007") == deaths
    dies(tmp_path, "d/000008")
    attempts.forget("d/000007")
    assert [attempts.count(f"d/00000{number}") for number in (7, 8)] == [0, 1]
    attempts.forget("d", below=True)
    assert attempts.count("d/000008") == 0


def test_many_who_work_at_a_key_at_once_are_no_deaths(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    attempts = Attempts(store, lasts=60)
    for host in range(5):
        record = {"owner": f"w{host}", "place": "elsewhere", "process": 1}
        store.write(f".sooner/attempts/a.{host}.json", json.dumps(record).encode())
        attempts.begin("a")
    assert attempts.count("a") == 0
    for path in (tmp_path / ".sooner/attempts").iterdir():
        os.utime(path, (time.time() - 120,) * 2)
    assert attempts.count("a") == 5
