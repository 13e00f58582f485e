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
    "miniatures": {"errors", "methods", "models", "robots"},
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


def used_parts(text: str, parents: tuple[str, ...]) -> set[str]:
    """Top-level parts of sooner that a module imports, by relative names or by full ones.

    Args:
        text: the module.
        parents: packages below `sooner` that it lies in.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found |= {name[1] for name in names if name[0] == "sooner" and len(name) > 1}
        elif isinstance(node, ast.ImportFrom):
            base = ["sooner", *parents[: len(parents) - node.level + 1]] if node.level else []
            parts = [*base, *(name for name in (node.module or "").split(".") if name)]
            if parts[0] == "sooner":
                found |= set(parts[1:2]) or {alias.name for alias in node.names}
    return found


def test_imports_are_seen_however_they_are_written() -> None:
    text = """
import sooner.theory.speed, numpy
from sooner.cli import main
from sooner import serve
from ...methods import x
from .. import lessons
from . import words
"""
    found = used_parts(text, ("miniatures", "video"))
    assert found == {"theory", "cli", "serve", "methods", "miniatures"}


@pytest.mark.parametrize("part", MAY_USE)
def test_a_part_imports_only_what_is_below_it(part: str) -> None:
    home = ROOT / part
    files = [home.with_suffix(".py")] if home.with_suffix(".py").exists() else home.rglob("*.py")
    for path in files:
        parents = path.relative_to(ROOT).parts[:-1]
        above = used_parts(path.read_text(), parents) - MAY_USE[part] - {part, "__version__"}
        assert not above, f"{path.relative_to(ROOT)} imports {sorted(above)}"


def test_every_part_is_listed() -> None:
    parts = {path.stem for path in ROOT.iterdir() if path.suffix in ("", ".py")}
    assert parts - {"__init__", "__pycache__", "cli", "py"} == set(MAY_USE)
