"""Imports point one way, as docs/architecture.md draws them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sooner

ROOT = Path(sooner.__file__).parent
MAY_USE = {
    "errors": set(),
    "decoding": {"errors"},
    "models": {"decoding", "errors"},
    "sparse": {"decoding", "models", "errors"},
    "theory": {"errors"},
    "methods": {"decoding", "models", "sparse", "errors"},
    "generation": {"decoding", "methods", "errors"},
    "drawing": {"decoding", "methods", "models", "errors"},
    "robots": {"errors"},
    "documents": {"errors"},
    "miniatures": {"errors", "models", "robots"},
    "tasks": {
        "decoding",
        "documents",
        "drawing",
        "errors",
        "generation",
        "methods",
        "miniatures",
        "models",
        "robots",
        "sparse",
    },
    "evaluation": {"documents", "errors", "tasks"},
    "serve": {"errors", "tasks"},
    "bench": {
        "decoding",
        "documents",
        "drawing",
        "errors",
        "evaluation",
        "generation",
        "methods",
        "miniatures",
        "models",
        "robots",
        "serve",
        "sparse",
        "tasks",
        "theory",
    },
}
"""Top-level parts and what they may import; `cli` may use everything, and nothing uses it."""


def used_parts(path: Path) -> set[str]:
    """Top-level parts of sooner that a file imports, relative imports resolved."""
    parents = path.relative_to(ROOT).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = parents[: len(parents) - node.level + 1]
            names = [*base, *(node.module or "").split(".")]
            parts = [name for name in names if name]
            found |= {parts[0]} if parts else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("part", MAY_USE)
def test_a_part_imports_only_what_is_below_it(part: str) -> None:
    home = ROOT / part
    files = [home.with_suffix(".py")] if home.with_suffix(".py").exists() else home.rglob("*.py")
    for path in files:
        above = used_parts(path) - MAY_USE[part] - {part, "__version__"}
        assert not above, f"{path.relative_to(ROOT)} imports {sorted(above)}"


def test_every_part_is_listed() -> None:
    parts = {path.stem for path in ROOT.iterdir() if path.suffix in ("", ".py")}
    assert parts - {"__init__", "__pycache__", "cli", "py"} == set(MAY_USE)
