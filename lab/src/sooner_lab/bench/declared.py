"""What declarations of tables and figures are made of: keys of results and of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Data = dict[str, Any]
Value = str | Callable[[Data], Any]
"""A key of a row, or what makes its value of the row."""
Rows = str | Callable[[Data], Sequence[Data]]
"""A key of the result (`a.b` leads into it), or what makes the rows of the result."""
Text = str | Callable[[Data], str]


def text(value: Text, result: Data) -> str:
    """Return a text that may be made of the result."""
    return value(result) if callable(value) else value


def rows_of(result: Data, rows: Rows) -> Sequence[Data]:
    """Return the rows that a table or a panel shows; what is not in the result is empty."""
    if callable(rows):
        return rows(result)
    value: Any = result
    for name in rows.split("."):
        value = (value or {}).get(name)
    return value or []


def value_of(row: Data, key: Value) -> Any:
    """Return a value of a row; `a.b` leads into it."""
    if callable(key):
        return key(row)
    if key in row:
        return row[key]
    value: Any = row
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def times(key: str, factor: float) -> Callable[[Data], float | None]:
    """Make the value of a column: a row's figure in another unit."""

    def value(row: Data) -> float | None:
        figure = value_of(row, key)
        return None if figure is None else factor * figure

    return value
