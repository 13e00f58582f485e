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
        shown: columns that the page shows.
        nothing: a key of `NOTHING`.
        other: rows that count another quantity in a column: row -> the column's -> its own.
    """

    name: str
    about: str
    columns: tuple[PaperColumn, ...] = ()
    rows: tuple[PaperRow, ...] = ()
    shown: tuple[str, ...] = ()
    nothing: str | None = None
    other: dict[str, dict[str, str]] = field(default_factory=dict)

    def column(self, name: str) -> PaperColumn:
        """The column of that name.

        Raises:
            SoonerError: it has none.
        """
        for one in self.columns:
            if one.name == name:
                return one
        raise SoonerError(f"{self.name} has no column '{name}', only {', '.join(self.names)}")

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.columns]

    def row(self, group: str, name: str) -> PaperRow:
        """The row of that name in that group.

        Raises:
            SoonerError: it has none.
        """
        for one in self.rows:
            if (one.group, one.name) == (group, name):
                return one
        raise SoonerError(f"{self.name} has no row '{name}' in '{group}'")

    def quantity(self, row: str, column: str) -> str:
        """What the figure of a row in a column counts."""
        own = self.column(column).quantity
        return self.other.get(row, {}).get(own, own)


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
        found = json.loads(path.read_text(encoding="utf-8"))
        yield Paper(found["paper"], slug, tuple(_item(one) for one in found["items"]))


def _item(found: dict[str, Any]) -> PaperItem:
    columns = tuple(
        PaperColumn(name, quantity, bool(order))
        for name, quantity, *order in found.get("columns", [])
    )
    names = [one.name for one in columns]
    rows = tuple(
        PaperRow(group, name, dict(zip(names, figures, strict=True)))
        for group, name, figures in found.get("rows", [])
    )
    return PaperItem(
        found["item"], found["about"], columns, rows, tuple(found.get("shown", names)),
        found.get("nothing"), found.get("other", {}),
    )  # fmt: skip
