"""A store's promises, the same for folders, memory and S3."""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from sooner.storage import MissingObjectError, ObjectInfo, StorageError, Store, is_url, open_store
from sooner.storage.store import S3Store
from storage.s3_server import S3Server

EVERYWHERE = pytest.mark.parametrize("any_store", ["local", "memory", "s3"], indirect=True)

ODD = [
    "a b/c d.json",
    "ä/日本語.md",
    "a#b?c%20d&e=f+g;h",
    "a/*[x]{y}.json",
    "q::r/~$'\"",
    "-",
    "..a",
]


@EVERYWHERE
def test_objects_come_back_as_they_were_written(any_store: Store) -> None:
    any_store.check()
    assert list(any_store.names()) == []
    assert not any_store.exists("a/b")
    with pytest.raises(MissingObjectError, match=r"^object '.*a/b' is not there$"):
        any_store.read("a/b")
    any_store.remove("a/b")
    any_store.write("a/b", b"one")
    any_store.write("a/c", [b"t", b"wo"])
    any_store.write("ab", b"")
    assert (any_store.read("a/b"), any_store.read("a/c"), any_store.read("ab")) == (
        b"one",
        b"two",
        b"",
    )
    any_store.write("a/b", b"longer than before")
    assert any_store.read("a/b") == b"longer than before"
    sizes = {info.name: info.size for info in any_store.names()}
    assert sizes == {"a/b": 18, "a/c": 3, "ab": 0}
    assert {info.name for info in any_store.names("a")} == set(sizes)
    assert {info.name for info in any_store.names("a/")} == {"a/b", "a/c"}
    assert {info.name for info in any_store.names("a/c")} == {"a/c"}
    assert list(any_store.names("b/")) == []
    assert not any_store.exists("a")
    any_store.remove("a/b")
    assert not any_store.exists("a/b")
    assert any_store.exists("a/c")


@EVERYWHERE
@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_names(any_store: Store, name: str) -> None:
    any_store.write(name, name.encode())
    assert any_store.exists(name)
    assert any_store.read(name) == name.encode()
    assert [info.name for info in any_store.names()] == [name]
    any_store.remove(name)
    assert not any_store.exists(name)


@EVERYWHERE
@pytest.mark.parametrize("name", ["", "/a", "a//b", "a/", "../a", "a/./b", "a/../../b", "a\0b"])
def test_what_is_no_name_is_refused(any_store: Store, name: str) -> None:
    for ask in (any_store.read, any_store.exists, any_store.remove):
        with pytest.raises(StorageError, match="is no path below a store"):
            ask(name)
    with pytest.raises(StorageError, match="is no path below a store"):
        any_store.write(name, b"x")


@EVERYWHERE
def test_threads_that_write_and_read_a_name_see_whole_values(any_store: Store) -> None:
    values = [bytes([i]) * (20_000 + 1_000 * i) for i in range(6)]
    any_store.write("one", values[0])
    seen = _at_once(6, lambda i: _write_and_read(any_store, "one", values[i]))
    assert {value for many in seen for value in many} <= set(values)


def test_long_names(tmp_path: Path, bucket: str, s3_server: S3Server) -> None:
    local, remote = open_store(tmp_path), open_store(bucket, **s3_server.options)
    longest = "ü" * 127 + "x"  # 255 bytes
    for store in (local, remote):
        store.write(longest, b"1")
        store.write(f"a/{longest}", b"1")
        assert store.read(longest) == b"1"
    for ask in (
        lambda name: local.write(name, b""),
        local.read,
        local.remove,
    ):
        with pytest.raises(StorageError, match=r"^object '.*: File name too long[^\n]*$"):
            ask(longest + "x")
    remote.write("/".join(["x" * 127] * 8), b"1")  # 1,023 bytes
    with pytest.raises(StorageError, match=r"has 1030 bytes; S3 takes up to 1024"):
        remote.write("ab/" + "ü" * 513 + "x", b"1")
    assert sorted(info.size for info in remote.names()) == [1, 1, 1]


def test_a_folder_in_the_way_is_reported_in_a_line(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.write("a/b", b"1")
    with pytest.raises(StorageError, match=r"a' can't be written: Is a directory; check what"):
        store.write("a", b"2")
    with pytest.raises(StorageError, match=r"a/b/c' can't be written: Not a directory; check what"):
        store.write("a/b/c", b"2")
    with pytest.raises(MissingObjectError):
        store.read("a/b/c")
    assert [info.name for info in store.names()] == ["a/b"]
    with pytest.raises(StorageError, match="kept for files that are being written"):
        store.write("a/.sooner-1.part", b"2")


def test_a_full_disk_leaves_the_old_object(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.write("a", b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StorageError, match=r"' can't be written: File too large; what is"):
            store.write("a", b"n" * 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert store.read("a") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_writer_left_is_swept_when_it_is_old(tmp_path: Path) -> None:

    store = open_store(tmp_path)
    store.write("a/b", b"1")
    old, new = (tmp_path / "a" / f".sooner-{uuid.uuid4().hex}.part" for _ in range(2))
    old.write_bytes(b"tor")
    new.write_bytes(b"tor")
    os.utime(old, (time.time() - 7200,) * 2)
    assert [info.name for info in store.names()] == ["a/b"]
    assert store.sweep(3600) == 1
    assert not old.exists()
    assert new.exists()
    assert store.sweep(0) == 1
    assert store.read("a/b") == b"1"


class Endless:
    """A file system of so many objects that it lists one by one, as scandir does."""

    count = 100_000
    pages = 0

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None

    def call_s3(self, method: str, **parameters: Any) -> dict[str, Any]:
        assert method == "list_objects_v2"
        self.pages += 1
        first = int(parameters.get("ContinuationToken", 0))
        entries = [
            {"Key": f"{parameters['Prefix']}{number:07d}", "Size": number, "LastModified": 1.0}
            for number in range(first, min(first + 1000, self.count))
        ]
        more = first + 1000 < self.count
        return {
            "Contents": entries,
            "IsTruncated": more,
            "NextContinuationToken": str(first + 1000),
        }


def test_a_listing_of_many_objects_is_read_on_demand() -> None:
    system = Endless()
    listing = S3Store("s3://b/root", system, "b/root").names("pages/")
    alive = []
    for number, _ in enumerate(listing, 1):
        if number % 20_000 == 0:
            alive.append(sum(isinstance(obj, ObjectInfo) for obj in gc.get_objects()))
            assert system.pages == number // 1000
    assert number == system.count
    assert max(alive) <= 2


def _at_once(count: int, do: Any) -> list[Any]:
    """What `do(i)` gives in as many threads, which begin together."""
    results: list[Any] = [None] * count
    begin = threading.Barrier(count)

    def run(i: int) -> None:
        begin.wait()
        results[i] = do(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _write_and_read(store: Store, name: str, value: bytes) -> list[bytes]:
    seen = []
    for _ in range(5):
        store.write(name, value)
        seen.append(store.read(name))
    return seen


def test_places(tmp_path: Path) -> None:
    store = open_store((tmp_path / "a b").as_uri())
    store.write("c", b"1")
    assert (tmp_path / "a b" / "c").read_bytes() == b"1"
    assert store.local_path("c") == tmp_path / "a b" / "c"
    assert is_url("s3://a/b")
    assert not is_url("C:\\a")
    assert not is_url(str(tmp_path))
    with pytest.raises(StorageError, match=r"output '.*/c' is a file; name a folder"):
        open_store(tmp_path / "a b" / "c")
    with pytest.raises(StorageError, match="names no bucket"):
        open_store("s3://")
    with pytest.raises(StorageError, match="shows objects that are half written"):
        open_store("ftp://host/a")
    with pytest.raises(StorageError, match=r"has an unknown scheme 'nowhere'; known are s3, http"):
        open_store("nowhere://host/a")
