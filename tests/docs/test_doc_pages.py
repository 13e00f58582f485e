"""Pages of the documentation name files that exist, keep to their lengths, and install one way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOMS = sorted((DOCS / "internals").glob("*.md"))
PATH = re.compile(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`")


def words(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", [DOCS / "architecture.md", *ROOMS], ids=lambda page: page.stem)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    names = set(PATH.findall(page.read_text(encoding="utf-8")))
    assert len(names) > 5
    missing = [
        name
        for name in names
        if not any((at / name).exists() for at in (ROOT / "src/sooner", ROOT))
    ]
    assert not missing


def test_architecture_is_a_page_and_a_page_for_each_room() -> None:
    assert words(DOCS / "architecture.md") <= 1500
    assert len(ROOMS) == 5
    for room in ROOMS:
        assert words(room) <= 1200, room.name
        assert f"internals/{room.name}" in (DOCS / "architecture.md").read_text(encoding="utf-8")


def test_there_is_a_single_way_to_install() -> None:
    blocks = []
    for page in ("README.md", "docs/index.md", "docs/installation.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks += re.findall(r"^```\n(python3 -m venv .*?)^```", text, re.M | re.S)
    assert len(blocks) == 3
    assert len(set(blocks)) == 1


def test_short_pages_stay_short() -> None:
    for page, lines in (("README.md", 130), ("CHANGELOG.md", 150), ("docs/log.md", 250)):
        assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= lines, page


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        assert str(page.relative_to(DOCS)) in menu, page.name
