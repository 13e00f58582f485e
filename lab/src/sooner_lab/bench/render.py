"""The renderer of every bench: pages and tables that a bench declares as data.

A bench has one `Page`: its tables (`Table`: which rows of the result, which columns, units and
formats), its figures (`plots.Figure`) and what stands in words between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from .declared import Data, Rows, Text, Value, rows_of, text, value_of
from .plots import Figure, check_matplotlib, pictures, save

Columns = Sequence[tuple[Value, str, str]]
"""The value, heading and format of each column."""

BEFORE = "What of them is rows stands below, the JSON has the rest; revision `{}` has the code."
"""Remark on parts of results that benches no longer measure."""
MAX_NAMES = 4
"""Figures that are listed in one cell of a part that is no longer measured."""


@dataclass(frozen=True)
class ReportTable:
    """A titled table of formatted cells, and a remark below it."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    remark: str = ""


@dataclass(frozen=True)
class Table:
    """A table as a bench declares it.

    Attributes:
        title: above it.
        rows: a line each; without any the table is left out.
        columns: of the table, or what makes them of the result.
        remark: below it.
    """

    title: Text
    rows: Rows
    columns: Columns | Callable[[Data], Columns]
    remark: Text = ""

    def render(self, result: Data) -> list[ReportTable]:
        """Return the table of a result in a list, which is empty where it has no rows."""
        rows = rows_of(result, self.rows)
        if not rows:
            return []
        columns = self.columns(result) if callable(self.columns) else self.columns
        lines = [[cell(value_of(row, key), form) for key, _, form in columns] for row in rows]
        heads = [heading for _, heading, _ in columns]
        return [ReportTable(text(self.title, result), heads, lines, text(self.remark, result))]


@dataclass(frozen=True)
class Page:
    """The page of a bench.

    Attributes:
        title: of the page.
        tables: declared ones, and functions that make several of the result.
        figures: of the page.
        intro: lines between the head and the first table.
        outro: lines behind the last table.
        retired: keys of parts that a result may have and the bench no longer measures, by the
            last commit that has their code: `plain_tables` shows them.
        goals: remark below the table of goals, which stands first.
        stem: of the figures' files; by default the result's.
    """

    title: Text
    tables: Sequence[Table | Callable[[Data], Sequence[ReportTable]]]
    figures: Sequence[Figure] = ()
    intro: Callable[[Data], list[str]] | None = None
    outro: Callable[[Data], list[str]] | None = None
    retired: Mapping[str, Sequence[str]] = field(default_factory=dict)
    goals: Text = ""
    stem: str = ""

    def make_tables(self, result: Data) -> list[ReportTable]:
        """Return every table that the result has figures for, the goals first."""
        tables = goal_table(result.get("goals") or [], text(self.goals, result))
        for table in self.tables:
            tables += table.render(result) if isinstance(table, Table) else table(result)
        for part in chain.from_iterable(self.retired.values()):
            tables += plain_tables(part, rows_of(result, part))
        return tables

    def markdown(self, result: Data, source: str) -> str:
        """Return the page; `source` names the JSON it came from."""
        lines = head(result, source, text(self.title, result))
        lines += self.intro(result) if self.intro else []
        for commit, parts in self.retired.items():
            if gone := [f"`{part}`" for part in parts if rows_of(result, part)]:
                remark = BEFORE.format(commit)
                lines += ["", f"No longer measured: {', '.join(gone)}. {remark}"]
        lines += sections(self.make_tables(result))
        lines += self.outro(result) if self.outro else []
        figures = [each for each in self.figures if each.has_data(result)]
        lines += pictures(figures, self.stem or source.removesuffix(".json"))
        return "\n".join(lines) + "\n"

    def write_figures(self, result: Data, folder: Path, stem: str) -> list[str]:
        """Draw the figures that the result has data for; returns the files' names.

        Raises:
            SoonerError: matplotlib is not installed.
        """
        drawn = [each for each in self.figures if each.is_drawn and each.has_data(result)]
        if drawn:
            check_matplotlib()
            folder.mkdir(parents=True, exist_ok=True)
        return [
            save(each.draw(result), folder / f"{self.stem or stem}-{each.name}") for each in drawn
        ]


def plain_tables(title: str, part: Any) -> list[ReportTable]:
    """Return tables of a part of a result that nobody declared: its own names and figures.

    Args:
        title: above the first one; those of lists and mappings within a mapping add their names.
        part: a list of rows, or a mapping, of which plain values are one row.
    """
    inner: list[ReportTable] = []
    if isinstance(part, Mapping):
        for name, value in part.items():
            if rows := _rows_within(value):
                inner += plain_tables(f"{title}, {name}", rows)
        part = [{name: value for name, value in part.items() if not _rows_within(value)}]
    rows = [_flat(row) for row in part if isinstance(row, Mapping)]
    heads = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[row.get(name, "–") for name in heads] for row in rows]
    title = f"{title} (no longer measured)"
    return [*([ReportTable(title, heads, lines)] if any(heads) else []), *inner]


def _rows_within(value: Any) -> list[Data]:
    """Return the rows of a list of mappings or of lists, or of a mapping of mappings."""
    if isinstance(value, Mapping) and all(isinstance(each, Mapping) for each in value.values()):
        return [{"": name, **each} for name, each in value.items()]
    if isinstance(value, list) and all(isinstance(each, list) for each in value):
        return [dict(zip(map(str, range(len(each))), each, strict=True)) for each in value]
    is_rows = isinstance(value, list) and all(isinstance(each, Mapping) for each in value)
    return value if is_rows else []


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Return the cells of a row: names and figures, those of inner mappings and short lists too."""
    cells: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            cells |= _flat(value, f"{before}{name}.")
        elif isinstance(value, list):
            if 0 < len(value) <= MAX_NAMES and not any(isinstance(x, dict | list) for x in value):
                cells[before + name] = ", ".join(map(_plain, value))
        else:
            cells[before + name] = _plain(value)
    return cells


def _plain(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def pivot(
    rows: Sequence[Data], line: str, column: str, cell_of: Callable[[Data], str], first: str = ""
) -> tuple[list[str], list[list[str]]]:
    """Lay rows out as a table of one key by another.

    Args:
        rows: in their order.
        line, column: keys whose values are the lines and the columns.
        cell_of: what stands in the cell of a row.
        first: heading of the first column.

    Returns:
        Headings, and lines of cells; a dash where there is no row.
    """
    columns = list(dict.fromkeys(row[column] for row in rows))
    cells = {(row[line], row[column]): cell_of(row) for row in rows}
    lines = list(dict.fromkeys(row[line] for row in rows))
    body = [[str(name), *(cells.get((name, each), "–") for each in columns)] for name in lines]
    return [first or line, *map(str, columns)], body


def goal_table(rows: Sequence[Data], remark: str = "") -> list[ReportTable]:
    """Return the table of goals in a list: what was wanted, what was reached, and the verdict.

    Args:
        rows: of `goals.goal`, or of a result before it: `wanted` may be words, `at_most` may be a
            `side`, `met` a `verdict` with its `reason`.
        remark: below it; goals of many points add which of them were missed.
    """
    if not rows:
        return []
    extra = [name for name in GOAL_EXTRA if any(row.get(name) is not None for row in rows)]
    lines = [
        [row["goal"], _slots_needed(row), cell(row.get("reached"), "{:.4g}")]
        + [GOAL_EXTRA[name](row) for name in extra]
        + [_verdict(row)]
        for row in rows
    ]
    missed = [
        f"{row['goal']}: " + "; ".join(f"{where}: {value:.3f}" for where, value in row["missed"])
        for row in rows
        if row.get("missed")
    ]
    if any("points" in row for row in rows):
        remark = f"{remark} The worst point counts.".strip()
    if missed:
        remark += " Missed: " + " · ".join(missed) + "."
    heads = ["goal", "wanted", "reached", *(GOAL_HEADS.get(name, name) for name in extra), ""]
    return [ReportTable("Goals", heads, lines, remark)]


def _interval(row: Data) -> str:
    edges = row.get("interval")
    return "–" if edges is None else f"{edges[0]:.3g} to {edges[1]:.3g}"


def _points(row: Data) -> str:
    return f"{row['points'] - len(row['missed'])} of {row['points']}" if "points" in row else "–"


GOAL_EXTRA: dict[str, Callable[[Data], str]] = {
    "interval": _interval,
    "recall": lambda row: cell(row.get("recall"), "{:.3f}"),
    "where": lambda row: str(row.get("where") or "–"),
    "points": _points,
}
"""What a goal may have besides, by its key."""
GOAL_HEADS = {"interval": "95 % interval", "recall": "at recall", "where": "at", "points": "met at"}


def _slots_needed(row: Data) -> str:
    bound = row["wanted"]
    if bound is None or isinstance(bound, str):
        return bound or "–"
    side = row.get("side") or ("at most" if row.get("at_most") else "at least")
    return f"{side} {bound:.4g}"


def _verdict(row: Data) -> str:
    if "verdict" in row:
        text = "**missed**" if row["verdict"] == "missed" else row["verdict"]
        return text + (f": {row['reason']}" if row.get("reason") else "")
    text = {None: "–", True: "met", False: "**missed**"}[row["met"]]
    return f"unmeasured: {row['reason']}" if row.get("reason") else text


def head(result: Mapping[str, Any], source: str, title: str) -> list[str]:
    """Title, origin and provenance, and which parts an earlier run left.

    Args:
        result: with `provenance`, and `kept` if it was added to.
        source: the JSON that the page is made from.
        title: of the page.
    """
    origin = result["provenance"]
    versions = origin["versions"]
    return [
        f"# {title}",
        "",
        f"Made from [`{source}`]({source}) by `sooner bench report`; don't edit.",
        "",
        f"`{' '.join(origin['argv'])}` · {origin['date']} · {revision(origin)} · "
        f"{origin['device']}, {_threads(origin)}, {origin['dtype']} · torch "
        f"{versions['torch']}, transformers {versions['transformers']}",
        *_dirty(origin),
        *_earlier_runs(result),
    ]


def revision(origin: Mapping[str, Any]) -> str:
    """The revision that a result's provenance names, and whether the tree was clean."""
    text = f"revision `{origin['git']}`"
    return f"{text} **+ uncommitted changes**" if origin.get("git_dirty") else text


def _dirty(origin: Mapping[str, Any]) -> list[str]:
    if not origin.get("git_dirty"):
        return []
    return [
        "",
        "> **Measured on a dirty tree**: files differed from this revision, so it does not give "
        "these figures again. Measure anew at a clean revision before quoting them.",
    ]


def _earlier_runs(result: Mapping[str, Any]) -> list[str]:
    lines = []
    for run in result.get("kept", []):
        made = run["provenance"]
        lines += [
            "",
            f"Of an earlier run: {', '.join(run['parts'])} (`{' '.join(made['argv'])}` · "
            f"{made['date']} · {revision(made)}).",
        ]
    return lines


def sections(tables: Sequence[ReportTable]) -> list[str]:
    """Every table under its title."""
    lines: list[str] = []
    for table in tables:
        lines += ["", f"## {table.title}", "", *table_lines(table.heads, table.rows)]
        lines += ["", table.remark] if table.remark else []
    return lines


def table_lines(heads: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    rule = ["---"] * len(heads)
    return ["| " + " | ".join(line) + " |" for line in (heads, rule, *rows)]


def figures_folder(path: Path) -> Path:
    """Where the figures of the result at `path` lie."""
    return path.parent / "figures"


def cell(value: Any, form: str) -> str:
    """A formatted figure; a dash for what was not measured."""
    return "–" if value is None else form.format(value)


def _threads(origin: Mapping[str, Any]) -> str:
    """Torch threads, and those of a draft process beside."""
    text = f"{origin['threads']} thread(s)"
    draft = origin.get("draft_threads")
    return f"{text} and {draft} of the draft process" if draft else text
