from __future__ import annotations

import pytest

from page_prompts import SLOTS


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of few slots, so that short prompts have several."""
    monkeypatch.setattr("sooner.engine.memory.manager.PAGE", SLOTS)
