from __future__ import annotations

import pytest

import sooner
from methods.children import snapshot_children
from methods.doors import methods


@pytest.fixture(scope="module", autouse=True)
def _ignore_existing_children() -> None:
    snapshot_children()


@pytest.fixture(params=["plain", "prompt-lookup", "speculative"])
def method(request: pytest.FixtureRequest) -> sooner.Method:
    """Methods that go through both doors."""
    return methods()[request.param]
