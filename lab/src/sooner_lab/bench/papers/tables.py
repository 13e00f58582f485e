"""The papers' tables and figures as they print them, and the figures of ours beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
class Key:
    """Where a figure of ours stands, and what makes it the paper's quantity and unit.

    Attributes:
        key: in the result, see `readme.value_at`.
        minus: another key, whose figure is taken off.
        plus, times: added, then multiplied by.
    """

    key: str
    minus: str = ""
    plus: float = 0.0
    times: float = 1.0

    def __str__(self) -> str:
        text = f"{self.key} - {self.minus}" if self.minus else self.key
        text += f" {self.plus:+g}" if self.plus else ""
        return f"({text}) * {self.times:.6g}" if self.times != 1 else text


@dataclass(frozen=True)
class Comparison:
    """Rows of one column held against ours.

    Attributes:
        item, group, column: of the paper.
        quantity: what ours counts; has to be what the column counts.
        result: the file in the folder of results, without `.json`; `theory` is calculated.
        regime: a key of `REGIMES`.
        how: on what, in a few words; `{KEY}` is the figure there.
        arms: row of the paper -> our key.
        only_order: why the figures are not put beside each other, but their order is judged.
        why: why the order fails, if it does.
        samples: how many clips, pages, drawings or starts the figures are of, or the key of that.
        intervals: row of the paper -> key of the 95 % interval of our figure, of whatever rises or
            falls with it; none where the result has none.
    """

    item: str
    group: str
    column: str
    quantity: str
    result: str
    regime: str
    how: str
    arms: Mapping[str, Key]
    only_order: str = ""
    why: str = ""
    samples: str | int = 0
    intervals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reason:
    """Why rows have no figure of ours: one of `REASONS`, and a few words."""

    kind: str
    report: str


@dataclass(frozen=True)
class Paper:
    """A paper with all its tables and figures, and what links them to ours.

    Attributes:
        name: of the paper.
        slug: name of its file.
        items: tables and figures.
        comparisons: in the page's order.
        reasons: why rows have no figure of ours, by item, `item / group` or `item / group / row`;
            the longest counts.
    """

    name: str
    slug: str
    items: tuple[PaperItem, ...]
    comparisons: tuple[Comparison, ...] = ()
    reasons: Mapping[str, Reason] = field(default_factory=dict)

    def reason(self, item: str, group: str, row: str) -> Reason | None:
        """Return why a row has no figure."""
        places = (f"{item} / {group} / {row}", f"{item} / {group}", item)
        return next((self.reasons[place] for place in places if place in self.reasons), None)


def papers() -> Iterator[Paper]:
    """Yield all of them."""
    for slug in PAPERS:
        path = files(__package__) / "data" / f"{slug}.json"
        data = json.loads(path.read_text(encoding="utf-8"))
        yield Paper(
            data["paper"],
            slug,
            tuple(_item(item) for item in data["items"]),
            tuple(each for entry in data["comparisons"] for each in _comparisons(entry)),
            {place: Reason(*reason) for place, reason in data["reasons"].items()},
        )


def _comparisons(data: dict[str, Any]) -> Iterator[Comparison]:
    """Yield the comparisons of an entry, one for each of its columns.

    Its `key` is that of every row, in which `{}` stands for the row's own part, and `{column}` for
    the column; behind ` - ` it names what is taken off. So does its `interval`.
    """
    fields = ("item", "quantity", "result", "regime", "how")
    for column in data.get("columns") or [data["column"]]:
        arms, intervals = {}, {}
        for row, part in data["rows"].items():
            key = data["key"].replace("{column}", column).replace("{}", part)
            figure, _, minus = key.partition(" - ")
            arms[row] = Key(figure, minus, data.get("plus", 0.0), data.get("times", 1.0))
            if "interval" in data:
                intervals[row] = data["interval"].replace("{}", part)
        yield Comparison(
            **{name: data[name] for name in fields}, group=data.get("group", ""), column=column,
            arms=arms, only_order=data.get("only_order", ""), why=data.get("why", ""),
            samples=data.get("samples", 0), intervals=intervals,
        )  # fmt: skip


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
