"""The papers' tables and figures, as they print them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from sooner.errors import SoonerError

PAPERS = ("parallelvlm", "hsd", "mminference", "spec-vla", "scd")
"""Files of `data`, in the page's order."""

NOTHING = {
    "illustration": "an illustration, without figures",
    "settings": "settings",
    "example": "single examples, without figures",
    "drawn": "drawn only; the text prints no figure of it",
    "repeats": "repeats figures of another table",
}
"""Why a table or figure has no rows."""


@dataclass(frozen=True)
class PaperColumn:
    """A column.

    Attributes:
        name: of it.
        quantity: see `QUANTITIES`.
        is_order: its figures are ranks, 1 the least: the paper prints which is greater, no more.
    """

    name: str
    quantity: str
    is_order: bool = False


@dataclass(frozen=True)
class PaperRow:
    """A row; `figures` by the name of the column, `None` where the paper has none."""

    group: str
    name: str
    figures: dict[str, float | None]


@dataclass(frozen=True)
class PaperItem:
    """A table or a figure.

    Attributes:
        name: `table 1`, `figure A2`.
        about: what it shows.
        columns, rows: its figures; none where `nothing` says why.
        printed: columns that the page shows.
        nothing: a key of `NOTHING`.
        other: rows that count another quantity in a column: row -> the column's -> its own.
    """

    name: str
    about: str
    columns: tuple[PaperColumn, ...] = ()
    rows: tuple[PaperRow, ...] = ()
    visible: tuple[str, ...] = ()
    nothing: str | None = None
    other: dict[str, dict[str, str]] = field(default_factory=dict)

    def column(self, name: str) -> PaperColumn:
        """The column of that name.

        Raises:
            SoonerError: it has none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise SoonerError(f"{self.name} has no column '{name}', only {', '.join(self.names)}")

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def row(self, group: str, name: str) -> PaperRow:
        """The row of that name in that group.

        Raises:
            SoonerError: it has none.
        """
        for row in self.rows:
            if (row.group, row.name) == (group, name):
                return row
        raise SoonerError(f"{self.name} has no row '{name}' in '{group}'")

    def quantity(self, row: str, column: str) -> str:
        """What the figure of a row in a column counts."""
        quantity = self.column(column).quantity
        return self.other.get(row, {}).get(quantity, quantity)


@dataclass(frozen=True)
class Paper:
    """A paper: its name, the name of its file, and all its tables and figures."""

    name: str
    slug: str
    items: tuple[PaperItem, ...]


def papers() -> Iterator[Paper]:
    """All of them."""
    for slug in PAPERS:
        path = files(__package__) / "data" / f"{slug}.json"
        data = json.loads(path.read_text(encoding="utf-8"))
        yield Paper(data["paper"], slug, tuple(_item(item) for item in data["items"]))


def _item(data: dict[str, Any]) -> PaperItem:
    columns = tuple(
        PaperColumn(name, quantity, bool(order))
        for name, quantity, *order in data.get("columns", [])
    )
    names = [column.name for column in columns]
    rows = tuple(
        PaperRow(group, name, dict(zip(names, figures, strict=True)))
        for group, name, figures in data.get("rows", [])
    )
    return PaperItem(
        data["item"], data["about"], columns, rows, tuple(data.get("shown", names)),
        data.get("nothing"), data.get("other", {}),
    )  # fmt: skip
