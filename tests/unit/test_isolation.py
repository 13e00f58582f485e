"""Tests of one process don't see each other's files in `memory://`, nor threads that read pages."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sooner.documents import BrokenPage
from sooner.storage import open_store
from sooner.tasks.parse.prefetch import PageStream


@pytest.mark.parametrize("turn", [1, 2])
def test_memory_is_empty_when_a_test_begins(turn: int) -> None:
    store = open_store("memory://shared")
    assert [info.name for info in store.names()] == []
    store.write(f"{turn}.txt", b"1")


@pytest.mark.parametrize("turn", [1, 2])
def test_no_page_is_read_when_a_test_begins(turn: int) -> None:
    """A job that is closed early leaves a thread that still reads the next page."""
    readers = [thread for thread in threading.enumerate() if thread.name.startswith("pages-")]
    assert readers == []
    reading = threading.Event()

    def pages():
        yield 1, BrokenPage(Path("a.pdf"), 1, "broken")
        reading.set()
        time.sleep(0.3)
        yield 2, BrokenPage(Path("a.pdf"), 2, "broken")

    stream = PageStream(pages(), None)
    stream.next(has_room=True)
    assert reading.wait(10)
    stream.close()
