"""The error lines that `docs/troubleshooting.md` explains are lines of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
VALUE = "\x00"
"""Stands for what an f-string puts in."""


def quoted() -> list[str]:
    """Error lines in the first column of the tables: code of three words and more."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.split(" | ")[0] for line in lines if line.startswith("| `")]
    spans = [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]
    return [span for span in spans if len(span.split()) > 2]


def template(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) or VALUE for part in node.values)
    return None


@pytest.fixture(scope="module")
def texts() -> str:
    templates = []
    for path in (ROOT / "src" / "sooner").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        templates += [text for node in ast.walk(tree) if (text := template(node))]
    return "\n".join(templates)


def test_the_page_quotes_lines() -> None:
    assert len(quoted()) > 25


@pytest.mark.parametrize("line", quoted())
def test_a_quoted_line_is_in_the_code(line: str, texts: str) -> None:
    parts = re.split(r"'[^']*'|\.\.\.|\b\d[\d.]*\b|\b[A-Z]\w+\b", line)
    pattern = "[^\n]*?".join(re.escape(part) for part in parts)
    assert re.search(pattern, texts), line
