from __future__ import annotations

from typing import Any

import pytest

import sooner
from methods.children import snapshot_children
from methods.doors import methods
from sooner.methods.parallel.worker import Worker


@pytest.fixture(scope="module", autouse=True)
def _ignore_existing_children() -> None:
    snapshot_children()


@pytest.fixture(params=["plain", "prompt-lookup", "speculative"])
def method(request: pytest.FixtureRequest) -> sooner.Method:
    """Methods that go through both doors."""
    return methods()[request.param]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Worker]:
    """Every worker of one run that a test starts."""
    workers: list[Worker] = []
    start = Worker.__init__

    def recorded(worker: Worker, *options: Any) -> None:
        start(worker, *options)
        workers.append(worker)

    monkeypatch.setattr(Worker, "__init__", recorded)
    return workers
