"""Attempts that never ended are counted; those of the living, and of other machines, are not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sooner.storage import Attempts, Store, open_store

EVERYWHERE = pytest.mark.parametrize("any_store", ["local", "memory", "s3"], indirect=True)

DIES = """
import os, signal, sys
from sooner.storage import Attempts, open_store
with Attempts(open_store(sys.argv[1])).trying(sys.argv[2], "worker"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def dies(folder: Path, key: str) -> None:
    assert subprocess.run([sys.executable, "-c", DIES, folder, key]).returncode == -signal.SIGKILL


@EVERYWHERE
def test_work_that_ends_leaves_nothing(any_store: Store) -> None:
    attempts = Attempts(any_store, maximum=1)
    with attempts.trying("a/b", "one"):
        assert len(list(any_store.names(".sooner/attempts/a/b/"))) == 1
        assert attempts.count("a/b") == 0  # this process is alive
    with pytest.raises(RuntimeError, match="of the work"), attempts.trying("a/b"):
        raise RuntimeError("of the work")
    assert list(any_store.names()) == []
    assert attempts.reason("a/b") is None


@pytest.mark.slow
def test_three_deaths_set_a_key_aside(tmp_path: Path) -> None:
    attempts = Attempts(open_store(tmp_path))
    for deaths in range(1, 4):
        assert attempts.reason("d/000007") is None
        dies(tmp_path, "d/000007")
        assert attempts.count("d/000007") == deaths
    dies(tmp_path, "d/000008")
    aside = attempts.set_aside("d/")
    assert list(aside) == ["d/000007"]
    reason = aside["d/000007"]
    assert reason == attempts.reason("d/000007") == "3 processes died at it; it is set aside"
    attempts.forget("d/000007")
    assert attempts.set_aside() == {}
    assert attempts.count("d/000008") == 1


def test_many_who_work_at_a_key_at_once_are_no_deaths(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    attempts = Attempts(store, lasts=60)
    for host in range(5):
        record = {"owner": f"w{host}", "host": "elsewhere", "place": "elsewhere", "process": 1}
        store.write(f".sooner/attempts/a/{host}.json", json.dumps(record).encode())
        attempts.begin("a")
    assert (attempts.count("a"), attempts.reason("a")) == (0, None)
    for path in (tmp_path / ".sooner/attempts/a").iterdir():
        os.utime(path, (time.time() - 120,) * 2)
    assert attempts.count("a") == 5
    assert attempts.reason("a") == "3 processes died at it; it is set aside"


@EVERYWHERE
def test_a_key_that_somebody_is_at_is_left_alone(any_store: Store) -> None:
    attempts = Attempts(any_store)
    first = attempts.take("a/b", "one")
    assert first is not None
    assert attempts.take("a/b", "two") is None
    assert attempts.take("a/c") is not None
    name, deaths = first
    assert deaths == 0
    attempts.renew(name)
    assert attempts.take("a/b") is None
    attempts.end(name)
    assert attempts.take("a/b") is not None


@EVERYWHERE
def test_of_many_takers_at_once_no_two_get_a_key(any_store: Store) -> None:
    """Whoever finds others beside his own record gives way, and somebody gets it in the end."""
    begin, changing = threading.Barrier(4), threading.Lock()
    at_work, most, rounds = [0], [0], [0] * 4

    def work(number: int) -> None:
        attempts = Attempts(any_store)
        begin.wait()
        while not rounds[number]:
            result = attempts.take("key", f"{number}")
            if result is None:
                time.sleep(0.003 * (number + 1))
                continue
            with changing:
                at_work[0] += 1
                most[0] = max(most[0], at_work[0])
            time.sleep(0.01)
            with changing:
                at_work[0] -= 1
            rounds[number] += 1
            attempts.end(result[0])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (rounds, most) == ([1] * 4, [1])
    assert list(any_store.names()) == []


def test_what_a_process_had_that_is_no_more_is_free(tmp_path: Path) -> None:
    """At once on the same machine, and after the lease where the process is on another one."""
    code = "import sys; from sooner.storage import Attempts, open_store; "
    code += "assert Attempts(open_store(sys.argv[1])).take('a/b', 'gone')"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    store = open_store(tmp_path)
    attempts = Attempts(store)
    result = attempts.take("a/b", lease=9e9)
    assert result is not None
    assert result[1] == 1
    elsewhere = {"owner": "w", "host": "elsewhere", "place": "elsewhere", "process": 1}
    store.write(".sooner/attempts/c/1.json", json.dumps(elsewhere).encode())
    os.utime(tmp_path / ".sooner/attempts/c/1.json", (time.time() - 120,) * 2)
    assert attempts.take("c", lease=600) is None
    result = attempts.take("c", lease=60)
    assert result is not None
    assert result[1] == 0  # it is no death before `lasts` seconds
