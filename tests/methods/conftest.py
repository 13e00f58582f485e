from __future__ import annotations

import pytest

import sooner
from methods.doors import methods


@pytest.fixture(params=["plain", "prompt-lookup", "speculative"])
def method(request: pytest.FixtureRequest) -> sooner.Method:
    """Methods that go through both doors."""
    return methods()[request.param]
