"""What all tests share: one thread, one seed, Ctrl-C, and no state that a test leaves behind."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from hypothesis import HealthCheck, settings
from packaging import version

import older_transformers
from longest_files import LONGEST

# Imports make no garbage, and looking for it would take a fifth of their time.
gc.disable()

# Few examples a test, and a thousand in the nightly lane. How long one takes depends on what else
# the machine does.
settings.register_profile(
    "core", settings(), max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("core"), max_examples=1000)
settings.load_profile("core")

# One thread: tiny operations gain nothing from a second, and on a busy machine two of them wait for
# each other at every barrier (seen: 0.25 s became 23 s).
torch.set_num_threads(1)

# A shell starts its background jobs deaf to Ctrl-C, and their children inherit it: tests that send
# one to a process of their own would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


HAS_LAB = importlib.util.find_spec("sooner_lab") is not None
IS_OLD = version.parse(metadata.version("transformers")) < version.parse(older_transformers.BELOW)
LAB = re.compile(r"^(from|import) sooner_lab\b", re.MULTILINE)
"""Modules that can't be imported without the lab."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slowest-files", type=int, default=0, metavar="N", help="end with the N slowest files"
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The slowest files, in seconds of their tests with setup and teardown."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.location[0]] += report.duration
    slowest = seconds.most_common(config.option.slowest_files)
    if slowest:
        total = sum(seconds.values())
        terminalreporter.section(f"{len(slowest)} slowest of {len(seconds)} files, {total:.0f} s")
        for name, spent in slowest:
            terminalreporter.write_line(f"{spent:7.1f} s  {name}")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules that begin by importing sooner-lab are left out without it; some on old versions."""
    if IS_OLD and collection_path.name in older_transformers.FILES:
        return True
    if HAS_LAB or collection_path.suffix != ".py":
        return None
    return True if LAB.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_collection_finish() -> None:
    """Modules and tests stay: no collection of garbage looks at them any more."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """At the end of the process modules are collected like everything else."""
    gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first; what can't pass on old versions, and without sooner-lab whole commands
    on miniatures, are skipped."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
    for item in items if IS_OLD else ():
        names = item.name, getattr(item, "originalname", item.name)
        if reason := next(filter(None, map(older_transformers.reason, names)), None):
            item.add_marker(pytest.mark.skip(reason=f"older transformers: {reason}"))
    if HAS_LAB:
        return
    for item in items:
        if "e2e" in item.path.parts or item.get_closest_marker("lab"):
            item.add_marker(pytest.mark.skip(reason="sooner-lab is not installed"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Draws from torch's global state are the same whatever ran before."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _isolated() -> Iterator[None]:
    """A test leaves no files in `memory://`, no log level and no thread that still reads pages.

    fsspec keeps one store of `memory://` a process. Threads that read pages ahead end on their own
    after a job has closed, and would go on into the next test with its `tempfile.tempdir`.
    """
    threads, level = set(threading.enumerate()), logging.getLogger("sooner").level
    yield
    logging.getLogger("sooner").setLevel(level)
    for thread in threading.enumerate():
        if thread not in threads and thread.name.startswith("pages-"):
            thread.join(10)
    memory = sys.modules.get("fsspec.implementations.memory")
    if memory is not None:
        memory.MemoryFileSystem.store.clear()
        memory.MemoryFileSystem.pseudo_dirs[:] = [""]
