"""The JSON file of a result: small, and a line for each of its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError
from sooner.io import write_text

LEVELS = 2
"""Levels of a result whose entries have a line each; what is deeper stands on its line."""


class ResultFile:
    """Writes a result as far as it is, so that an interrupted bench leaves its finished parts.

    Args:
        path: the file; `None` writes nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def __call__(self, result: dict[str, Any]) -> None:
        """Write the result."""
        if self.path is not None:
            write_result(result, self.path)


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
