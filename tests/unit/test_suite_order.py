"""Long test files are begun first, and the list of them holds no file that is no more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from longest_files import LONGEST

ROOT = Path(__file__).parents[2]


def test_every_long_file_is_there_once() -> None:
    folders = (ROOT / "tests", ROOT / "lab" / "tests")
    names = Counter(path.name for folder in folders for path in folder.rglob("test_*.py"))
    assert [name for name in LONGEST if names[name] != 1] == []
    assert len(set(LONGEST)) == len(LONGEST)


def test_the_long_ones_come_first(request: pytest.FixtureRequest) -> None:
    names = [item.path.name for item in request.session.items]
    places = [LONGEST.index(name) if name in LONGEST else len(LONGEST) for name in names]
    assert places == sorted(places)
