"""Imports point one way, as docs/architecture.md draws them; lazy and TYPE_CHECKING ones count."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

import sooner

LIBRARY = Path(sooner.__file__).parent
LAB = importlib.util.find_spec("sooner_lab")

BASE = {"checks", "errors", "interrupts", "io", "plugins", "registry"}
"""What everything may use."""
MAY_USE: dict[str, set[str]] = {
    "checks": set(),
    "errors": set(),
    "interrupts": set(),
    "io": set(),
    "options": set(),
    "plugins": set(),
    "registry": set(),
    "miniatures": set(),
    "provenance": set(),
    "attention": set(),
    "fusion": set(),
    "parity": set(),
    "stats": set(),
    "decoding": {"attention", "fusion", "stats"},
    "graphs": {"attention", "decoding", "models", "stats"},
    "memory": {"attention", "decoding", "methods", "models"},
    "models": {"attention", "decoding"},
    "sparse": {"decoding", "models"},
    "methods": {"attention", "decoding", "fusion", "graphs", "models", "sparse", "stats"},
    "generation": {"decoding", "graphs", "methods", "models", "options", "prepared", "stats"},
    "prepared": {"decoding", "methods"},
    "request": {"decoding", "memory", "methods", "stats"},
    "prefilling": {"decoding", "generation", "memory", "models", "prepared", "request"},
    "running": {"decoding", "memory", "prefilling", "request"},
    "pacing": set(),
    "engine": {
        "decoding", "generation", "graphs", "memory", "methods", "options", "pacing", "prefilling",
        "request", "running",
    },
    "drawing": {"decoding", "methods", "models", "stats"},
    "robots": set(),
    "hub": {"drawing", "methods", "models", "sparse", "tasks"},
    "storage": set(),
    "documents": {"storage"},
    "tasks": {
        "decoding", "documents", "drawing", "engine", "generation", "memory", "methods",
        "miniatures", "models", "parity", "request", "robots", "sparse", "stats", "storage",
    },
    "serve": {
        "decoding", "documents", "engine", "generation", "graphs", "memory", "methods",
        "miniatures", "models", "pacing", "request", "stats", "storage", "tasks",
    },
    "demo": {
        "decoding", "documents", "methods", "miniatures", "models", "parity", "serve", "sparse",
        "stats", "tasks",
    },
    "ray": {"documents", "methods", "serve", "storage", "tasks"},
}  # fmt: skip
"""Top-level parts and what they may import; `cli` may use everything, and nothing uses it."""


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


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other in a loop (Tarjan's strongly connected parts)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    cycles: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        open_.append(name)
        for other in sorted(edges[name]):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in open_:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            part = [open_.pop()]
            while part[-1] != name:
                part.append(open_.pop())
            if len(part) > 1:
                cycles.append(sorted(part))

    for name in edges:
        if name not in order:
            visit(name)
    return cycles


@functools.cache
def library() -> dict[str, set[str]]:
    """The graph of the library alone."""
    return graph(LIBRARY)


@pytest.mark.parametrize("part", MAY_USE)
def test_a_part_imports_only_what_is_below_it(part: str) -> None:
    for name, targets in library().items():
        if name.split(".")[1:2] == [part]:
            used = {other.split(".")[1] for other in targets if "." in other}
            above = used - MAY_USE[part] - BASE - {part}
            assert not above, f"{name} imports {sorted(above)}"


def test_every_part_is_listed() -> None:
    parts = {path.stem for path in LIBRARY.iterdir() if path.suffix in ("", ".py")}
    assert parts - {"__init__", "__pycache__", "cli", "py"} == set(MAY_USE)


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
    assert circles(graph(*homes)) == []
