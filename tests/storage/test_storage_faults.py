"""Writers that are killed, servers that fail, answers that are lost: objects stay whole."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sooner.storage import MissingObjectError, StorageError, Store, open_store
from storage.s3_server import S3Request, S3Server

WRITER = """
import hashlib, json, random, sys
from sooner.storage import open_store
place, options, size, seed = json.loads(sys.argv[1])
store, draw = open_store(place, **options), random.Random(seed)
print("ready", flush=True)
while True:
    body = draw.randbytes(draw.randrange(size))
    data = hashlib.sha256(body).digest() + body
    store.write("one", data)
    store.write(f"many/{draw.randrange(10**9)}", data)
"""


def is_whole(data: bytes) -> bool:
    import hashlib

    return hashlib.sha256(data[32:]).digest() == data[:32]


def start(place: str, options: dict[str, Any], size: int, seed: int) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WRITER, json.dumps([place, options, size, seed])],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def kill_writers(
    place: str, options: dict[str, Any], size: int, kills: int, seconds: float
) -> Store:
    """Three writers at a time on one name and on names of their own; each is killed at random."""
    store, draw = open_store(place, **options), random.Random(kills)
    workers = [start(place, options, size, i) for i in range(3)]
    seen, late = set(), time.time() + 60
    try:
        for number in range(kills):
            until = time.time() + draw.uniform(0.0, seconds)
            # A busy machine may write nothing within the time of a kill.
            while time.time() < until or (len(seen) < 2 and time.time() < late):
                try:
                    data = store.read("one")
                except MissingObjectError:
                    continue
                assert is_whole(data)
                seen.add(data[:32])
            victim = draw.randrange(3)
            workers[victim].kill()
            assert workers[victim].wait() == -signal.SIGKILL
            if number + 3 < kills:
                workers[victim] = start(place, options, size, 3 + number)
            if number % 10 == 9:  # they are many, and moto keeps them in memory
                remove_whole(store, workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert len(seen) > 1
    return store


def remove_whole(store: Store, workers: list[subprocess.Popen[str]]) -> None:
    """Take away what was created by now, all of it whole; its writers, who are quicker, rest."""
    for worker in workers:
        worker.send_signal(signal.SIGSTOP)
    for info in store.names("many/"):
        assert is_whole(store.read(info.name))
        store.remove(info.name)
    for worker in workers:
        worker.send_signal(signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize(("where", "kills"), [("local", 9), ("s3", 3)])
def test_killed_writers_leave_whole_objects(
    where: str, kills: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    _kill_and_read(where, kills, tmp_path, request)


@pytest.mark.soak
@pytest.mark.parametrize("where", ["local", "s3"])
def test_two_hundred_killed_writers_leave_whole_objects(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    _kill_and_read(where, 200, tmp_path, request)


def _kill_and_read(where: str, kills: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place, options = str(tmp_path), {}
    if where == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        place, options = request.getfixturevalue("bucket"), server.options
    store = kill_writers(place, options, 3_000_000 if where == "local" else 800_000, kills, 0.3)
    names = [info.name for info in store.names()]
    assert "one" in names
    assert all(is_whole(store.read(name)) for name in names)
    assert all(name == "one" or name.startswith("many/") for name in names)
    if where == "local":
        store.sweep(0)
        assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")} == {
            *names, "many",
        }  # fmt: skip


def is_put(request: S3Request) -> bool:
    return request.method == "PUT"


def test_s3_never_copies(bucket: str, s3_server: S3Server) -> None:
    store = open_store(f"{bucket}/out", **s3_server.options)
    s3_server.requests.clear()
    store.check()
    store.write("a", b"1")
    store.write("a", b"2")
    store.write("b", b"1")
    store.remove("a")
    requests = list(s3_server.requests)
    assert not any(request.copy_source for request in requests)
    assert {request.method for request in requests} <= {"GET", "PUT", "HEAD", "DELETE"}
    puts = [request.path.rpartition("/")[2] for request in requests if is_put(request)]
    assert puts[1:] == ["a", "a", "b"]
    s3_server.requests.clear()
    assert store.read("b") == b"1"
    assert store.exists("b")
    assert not store.exists("a")
    assert [request.method for request in s3_server.requests] == ["GET", "HEAD", "HEAD"]


@pytest.mark.parametrize("statuses", [(500,), (503, 503), (-500,), (-503, 500)])
def test_what_a_busy_server_refuses_is_tried_again(
    statuses: tuple[int, ...], bucket: str, s3_server: S3Server
) -> None:
    """A negative status is an answer that is lost: the request was carried out."""
    store = open_store(bucket, **s3_server.options)
    with s3_server.failure(*statuses, of=is_put):
        store.write("a", b"1")
    assert store.read("a") == b"1"
    with s3_server.failure(*statuses, of=is_put):
        store.write("b", b"2")
    assert store.read("b") == b"2"
    if statuses == (500,):
        with s3_server.failure(*statuses):
            assert {info.name for info in store.names()} == {"a", "b"}
        with s3_server.failure(*statuses):
            assert store.read("b") == b"2"


def test_what_can_t_be_reached_is_reported_in_a_line(
    bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = open_store(f"{bucket}-of-nobody/a", **s3_server.options)
    with pytest.raises(
        StorageError, match=r"^store 's3://[^']*-of-nobody/a' can't be written: [^\n]*bucket"
    ):
        nowhere.check()
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    options = {**s3_server.options, "endpoint_url": "http://127.0.0.1:9"}
    down = open_store(bucket, **options)
    down.system.retries = 1  # type: ignore[attr-defined]
    for ask in (down.check, lambda: down.read("a"), lambda: list(down.names())):
        with pytest.raises(StorageError, match=r"^(object|store) 's3://.*Could not connect[^\n]*$"):
            ask()
