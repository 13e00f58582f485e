"""Counts riddle words in identifiers and checks how docstrings begin.

usage: python tools/words.py [ROOT ...]     # default: src lab/src tests lab/tests

Prints riddle words per 1,000 lines for each root and the files that have most. Ends with 1 if a
root has more than `LIMIT`, or if a docstring begins with one of `BEGINNINGS` and is not in
`EXCEPTIONS`.
Peers, measured the same way: torchtitan 1, mlx-lm 1, speculators 2, mini-sglang 3, kvpress 10.
"""

from __future__ import annotations

import ast
import collections
import re
import sys
from collections.abc import Iterator
from pathlib import Path

RIDDLES = frozenset((
    "told", "said", "asked", "found", "held", "own", "one", "kept", "shown", "taken", "wanted",
    "passage", "whoever", "theirs", "others", "beside", "behind", "most", "least", "says",
    "say", "heard", "hear", "trust", "given",
))  # fmt: skip
LIMIT = 5.0
BEGINNINGS = ("Of ", "The same", "Those ")
EXCEPTIONS: tuple[str, ...] = ()
"""`path:name` of docstrings that may begin so; ten at most."""


def is_riddle(name: str) -> bool:
    """Whether an identifier holds a word of `RIDDLES`."""
    return any(part in RIDDLES for part in re.split(r"_+", name.lower()))


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yields each identifier of a module as often as it stands there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring, those of attributes included."""
    for node in ast.walk(tree):
        for child in (
            getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ()
        ):
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                yield child.lineno, child.value.value.strip()


def read(root: str) -> Iterator[tuple[Path, str, ast.Module]]:
    """Yields path, text and syntax tree of each Python file under `root`."""
    for path in sorted(Path(root).rglob("*.py")):
        text = path.read_text()
        yield path, text, ast.parse(text)


def main(roots: list[str]) -> int:
    """Prints the counts; returns 1 if a limit is exceeded."""
    failed = False
    for root in roots or ["src", "lab/src", "tests", "lab/tests"]:
        words: collections.Counter[str] = collections.Counter()
        files: list[tuple[int, Path]] = []
        lines = 0
        for path, text, tree in read(root):
            lines += text.count("\n")
            riddles = [name for name in identifiers(tree) if is_riddle(name)]
            words.update(riddles)
            files.append((len(riddles), path))
            for line, docstring in docstrings(tree):
                if docstring.startswith(BEGINNINGS) and f"{path}:{line}" not in EXCEPTIONS:
                    failed = True
                    print(f"{path}:{line}: the docstring begins with {docstring[:40]!r}")
        rate = 1000 * sum(words.values()) / max(lines, 1)
        failed |= rate > LIMIT
        common = ", ".join(f"{word} {count}" for word, count in words.most_common(8))
        print(f"{root}: {rate:.1f} riddle words per 1,000 of {lines} lines; {common}")
        for count, path in sorted(files, reverse=True)[:5]:
            if count and rate > LIMIT:
                print(f"   {count:4d}  {path}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
