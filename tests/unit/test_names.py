"""A name stands for one thing: no two public classes share one, and few files do."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from test_imports import LAB, LIBRARY

HOMES = [LIBRARY, *map(Path, LAB.submodule_search_locations or () if LAB else ())]
ROLES = {
    "__init__", "architecture", "arms", "base", "build", "card", "drafter", "evaluate", "goals",
    "loading", "losses", "method", "page", "plots", "prompts", "recipe", "run", "settings", "train",
    "words", "world",
}  # fmt: skip
"""File names that say which part of its folder a file is, the same in every folder."""
MOST = 4


def public_classes(homes: list[Path]) -> dict[str, list[str]]:
    """Files of every class without an underscore, wherever in a module it is."""
    found = defaultdict(list)
    for home in homes:
        for path in sorted(home.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(home.parent)))
    return found


def crowded(homes: list[Path]) -> dict[str, int]:
    """File names that more than `MOST` files have, and that are no role."""
    counts: dict[str, int] = defaultdict(int)
    for home in homes:
        for path in home.rglob("*.py"):
            counts[path.stem] += 1
    return {name: n for name, n in counts.items() if n > MOST and name not in ROLES}


def test_each_public_class_has_a_name_of_its_own() -> None:
    found = public_classes(HOMES)
    assert "Adapter" in found
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_few_files_share_a_name_unless_it_is_a_role() -> None:
    assert crowded(HOMES) == {}


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    for number in range(MOST + 1):
        folder = tmp_path / f"part{number}"
        folder.mkdir()
        (folder / "reading.py").write_text("class Job:\n    class Part: ...\n", encoding="utf-8")
        (folder / "settings.py").write_text("class _Own: ...\n", encoding="utf-8")
    assert crowded([tmp_path]) == {"reading": MOST + 1}
    classes = public_classes([tmp_path])
    assert sorted(classes) == ["Job", "Part"]
    assert len(classes["Job"]) == MOST + 1
