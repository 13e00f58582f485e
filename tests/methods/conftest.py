from __future__ import annotations

import pytest

import sooner
from methods.children import forget_others
from methods.doors import methods


@pytest.fixture(scope="module", autouse=True)
def _only_own_children() -> None:
    forget_others()


@pytest.fixture(params=["plain", "prompt-lookup", "speculative"])
def method(request: pytest.FixtureRequest) -> sooner.Method:
    """Methods that go through both doors."""
    return methods()[request.param]
