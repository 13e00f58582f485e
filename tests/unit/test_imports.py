"""Imports point one way, as docs/architecture.md draws them; lazy and TYPE_CHECKING ones count."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sooner

LIBRARY = Path(sooner.__file__).parent
LAB = importlib.util.find_spec("sooner_lab")

BASE = {"checkpoints", "checks", "errors", "interrupts", "io", "plugins", "registry"}
"""What everything may use."""
MAY_USE: dict[str, set[str]] = {
    "checkpoints": set(),
    "checks": set(),
    "errors": set(),
    "interrupts": set(),
    "io": set(),
    "options": set(),
    "plugins": set(),
    "registry": set(),
    "miniatures": set(),
    "provenance": set(),
    "parity": set(),
    "engine": {"engine.attention", "engine.stats", "parity"},
    "engine.attention": set(),
    "engine.stats": set(),
    "engine.graphs": {"engine", "engine.attention", "engine.stats", "models"},
    "engine.memory": {"engine", "engine.attention", "methods", "models"},
    "engine.scheduler": {
        "engine", "engine.graphs", "engine.memory", "engine.stats", "methods", "models",
        "options",
    },
    "models": {"engine", "engine.attention"},
    "sparse": {"engine", "engine.attention", "models", "provenance"},
    "methods": {
        "engine", "engine.attention", "engine.graphs", "engine.stats", "models", "parity",
        "sparse",
    },
    "generation": {
        "engine", "engine.graphs", "engine.memory", "engine.stats", "methods", "models",
        "options",
    },
    "drawing": {"engine", "engine.stats", "methods", "models"},
    "robots": set(),
    "storage": set(),
    "documents": {"storage"},
    "tasks": {
        "documents", "drawing", "engine", "engine.memory", "engine.scheduler", "engine.stats",
        "generation", "methods", "miniatures", "models", "parity", "provenance", "robots", "sparse",
        "storage",
    },
    "serve": {
        "documents", "engine", "engine.graphs", "engine.memory", "engine.scheduler",
        "engine.stats", "generation", "methods", "miniatures", "models", "parity", "storage",
        "tasks",
    },
    "demo": {
        "documents", "engine", "engine.stats", "methods", "miniatures", "models", "parity",
        "robots", "serve", "sparse", "tasks",
    },
    "ray": {"documents", "methods", "serve", "storage", "tasks"},
}  # fmt: skip
"""Parts and what they may import; `cli` may use everything, and nothing uses it."""
SCHEDULER = {"request", "scheduler"}
"""Modules of the engine that take requests in; the others know rows alone."""


def part_of(name: str) -> str:
    """The part of a module; the engine has several."""
    parts = name.split(".")[1:]
    if parts[0] == "engine" and len(parts) > 1:
        if parts[1] in SCHEDULER:
            return "engine.scheduler"
        if (LIBRARY / "engine" / parts[1]).is_dir():
            return f"engine.{parts[1]}"
    return parts[0]


def modules(home: Path) -> dict[str, Path]:
    """Every module of a package by its full name."""
    files = {}
    for path in sorted(home.rglob("*.py")):
        parts = path.relative_to(home.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of `known` that a module imports, wherever in it."""
    parents = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            home = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{home}.{alias.name}"
                if whole in known:
                    yield whole
                elif home in known:
                    yield home


def graph(*homes: Path) -> dict[str, set[str]]:
    """Who imports whom, over the modules of some packages."""
    known = {name: path for home in homes for name, path in modules(home).items()}
    return {name: set(imports(name, path, known)) - {name} for name, path in known.items()}


@functools.cache
def library() -> dict[str, set[str]]:
    """The graph of the library alone."""
    return graph(LIBRARY)


@pytest.mark.parametrize("part", MAY_USE)
def test_a_part_imports_only_what_is_below_it(part: str) -> None:
    for name, targets in library().items():
        if "." in name and part_of(name) == part:
            used = {part_of(other) for other in targets if "." in other}
            above = used - MAY_USE[part] - BASE - {part}
            assert not above, f"{name} imports {sorted(above)}"


def test_every_part_is_listed() -> None:
    parts = {path.stem for path in LIBRARY.iterdir() if path.suffix in ("", ".py")}
    assert parts - {"__init__", "__pycache__", "cli", "py"} == {
        part for part in MAY_USE if "." not in part
    }


def test_the_library_never_names_the_lab() -> None:
    """Not even in an import that is never run: it finds the lab by entry points."""
    for name, path in modules(LIBRARY).items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            assert not any(module.split(".")[0] == "sooner_lab" for module in names), name


def test_nothing_imports_in_circles() -> None:
    homes = [LIBRARY]
    if LAB is not None and LAB.origin is not None:
        homes.append(Path(LAB.origin).parent)
    TopologicalSorter(graph(*homes)).prepare()  # raises an error that names a circle
