"""The JSON file of a result: small, and a line for each of its rows."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError
from sooner.io import write_text

from .declared import rows_of

LEVELS = 2
"""Levels of a result whose entries have a line each; what is deeper stands on its line."""


class ResultFile:
    """Writes a result as far as it is, so that an interrupted bench leaves its finished parts.

    Parts that the file has and the bench no longer measures (`Page.retired`) stay in it, with the
    run that they are of.

    Args:
        path: the file, which is read now; `None` writes nothing.
        bench: the name of the command.
    """

    def __init__(self, path: Path | None, bench: str) -> None:
        self.path, self.before = path, {}
        with suppress(SoonerError):  # no earlier result
            self.before = read_result(path, bench)

    def __call__(self, result: dict[str, Any]) -> None:
        """Write the result."""
        if self.path is not None:
            write_result(with_retired(result, self.before), self.path)


def with_retired(result: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the retired parts of an earlier one of the same bench and model."""
    if not before or before.get("model") != result.get("model"):
        return result
    from .report import page_of
    from .run import earlier_runs  # takes torch, which a command's help does without

    merged, names = dict(result), []
    for part in chain.from_iterable(page_of(result).retired.values()):
        outer, _, inner = part.partition(".")
        rows = rows_of(before, part)
        if not rows or rows_of(merged, part):
            continue
        merged[outer] = {**merged.get(outer, {}), inner: rows} if inner else rows
        names.append(part)
    if names:
        later = [part for run in merged.get("kept", []) for part in run["parts"]]
        merged["kept"] = earlier_runs(before, sorted({*later, *names}))
    return merged


def write_result(result: dict[str, Any], path: Path | str) -> None:
    """Write a result whole or not at all.

    Indented, the committed results are 0.8 MB larger; on one line, no change of a row is seen.
    """
    write_text(_lines(result, LEVELS) + "\n", path)


def _lines(content: Any, levels: int) -> str:
    """JSON without blanks, the entries of the outer `levels` on lines of their own."""
    if levels == 0 or not content or not isinstance(content, (dict, list)):
        return json.dumps(content, separators=(",", ":"))
    if isinstance(content, dict):
        # JSON's names are texts; its own writer makes them of numbers.
        entries = [
            f"{json.dumps({name: 0}, separators=(',', ':'))[1:-3]}:{_lines(value, levels - 1)}"
            for name, value in content.items()
        ]
        return "{\n" + ",\n".join(entries) + "\n}"
    return "[\n" + ",\n".join(_lines(value, levels - 1) for value in content) + "\n]"


def read_result(path: Path | None, bench: str) -> dict[str, Any]:
    """Return the earlier result that `--add` adds to.

    Args:
        path: of an earlier `--json`.
        bench: the command that wrote it.

    Raises:
        SoonerError: no file was named, or it holds no result of that command.
    """
    if path is None or not path.is_file():
        raise SoonerError(f"--add needs the FILE of an earlier --json, not {str(path)!r}")
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SoonerError(f"'{path}' is no result of this command: {error}") from error
    if not isinstance(result, dict) or result.get("bench") != bench:
        raise SoonerError(f"'{path}' is no result of this command")
    return result
