"""The renderer of every bench: pages, tables and figures that a bench declares as data.

A bench has one `Page`: its tables (`Table`: which rows of the result, which columns, units and
formats), its figures (`Figure`: panels, axes, series) and what stands in words between them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError

Data = dict[str, Any]
Value = str | Callable[[Data], Any]
"""A key of a row, or what makes its value of the row."""
Columns = Sequence[tuple[Value, str, str]]
"""Of each column its value, its heading and its format."""
Rows = str | Callable[[Data], Sequence[Data]]
"""A key of the result (`a.b` leads into it), or what makes the rows of the result."""
Text = str | Callable[[Data], str]

# Okabe and Ito's colours, which stay apart for the colour-blind; markers differ as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#777777")
MARKERS = "osD^vPx*"


BEFORE = (
    "Revision `9362df8` has the code, and in its copy of this page what is not shown here any more."
)
"""Where parts of results stand that benches no longer measure."""


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
class Panel:
    """One axis of a figure.

    Attributes:
        rows: points of all series.
        x, y: of a point; several keys of `y` are a series each.
        by: key of a row whose values are the series; empty is one series.
        xlabel, ylabel: of the axes.
        kind: `line`, `mark` or `bar`.
        interval: key of `[low, high]`, drawn as a band behind a line.
        log: which axes are logarithmic, such as `"xy"`.
        level: a horizontal line.
        scale: of `y`, such as 100 for a percentage.
        names: labels of series, where they are not their values or keys.
        title: above the axis.
    """

    rows: Rows
    x: Value
    y: str | tuple[str, ...]
    xlabel: str
    ylabel: str
    by: str = ""
    kind: str = "line"
    interval: str = ""
    log: str = ""
    level: float | None = None
    scale: float = 1.0
    names: Mapping[str, str] | None = None
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure as a bench declares it.

    Attributes:
        name: behind the result's own in the file's name.
        caption: below it.
        panels: side by side; without any the picture is of an earlier revision and only linked.
        title: above it; by default the caption.
        needs: keys of which the result has to have one, or a function that says whether it has
            the data.
        size: of a panel, inches.
        drawing: draws a figure whose panels are not declared; returns matplotlib's.
        also: stands behind the caption, such as a link.
        columns: panels side by side; by default all.
    """

    name: str
    caption: str
    panels: tuple[Panel, ...] = ()
    title: str = ""
    needs: str | Callable[[Data], bool] = ""
    size: tuple[float, float] = (4.6, 3.8)
    drawing: Callable[[Data], Any] | None = None
    also: str = ""
    columns: int = 0

    @property
    def is_drawn(self) -> bool:
        """Whether the picture is made of the result; else it is of an earlier revision."""
        return bool(self.panels) or self.drawing is not None

    def has_data(self, result: Data) -> bool:
        """Whether the result has what the figure shows."""
        if callable(self.needs):
            return bool(self.needs(result))
        if self.needs:
            return bool(rows_of(result, self.needs))
        return any(rows_of(result, panel.rows) for panel in self.panels)

    def draw(self, result: Data) -> Any:
        """Return the matplotlib figure."""
        if self.drawing is not None:
            return self.drawing(result)
        from matplotlib.figure import Figure as Canvas

        panels = [each for each in self.panels if rows_of(result, each.rows)]
        width, height = self.size
        columns = min(self.columns or len(panels), len(panels))
        down = -(-len(panels) // columns)
        figure = Canvas(figsize=(width * columns, height * down), layout="constrained")
        figure.suptitle(self.title or self.caption, fontsize=11)
        axes = figure.subplots(down, columns, squeeze=False).ravel()
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        for axis, panel in zip(axes, panels, strict=False):
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
            axis.set_axisbelow(True)
            _draw_panel(axis, panel, result)
        return figure


@dataclass(frozen=True)
class Page:
    """The page of a bench.

    Attributes:
        title: of the page.
        tables: declared ones, and functions that make several of the result.
        figures: of the page.
        intro: lines between the head and the first table.
        outro: lines behind the last table.
        retired: parts that a result may have and the bench no longer measures.
        goals: remark below the table of goals, which stands first.
        stem: of the figures' files; by default the result's.
    """

    title: Text
    tables: Sequence[Table | Callable[[Data], Sequence[ReportTable]]]
    figures: Sequence[Figure] = ()
    intro: Callable[[Data], list[str]] | None = None
    outro: Callable[[Data], list[str]] | None = None
    retired: Sequence[str] = ()
    goals: Text = ""
    stem: str = ""

    def make_tables(self, result: Data) -> list[ReportTable]:
        """Return every table that the result has figures for, the goals first."""
        found = goal_table(result.get("goals") or [], text(self.goals, result))
        for table in self.tables:
            found += table.render(result) if isinstance(table, Table) else table(result)
        return found

    def markdown(self, result: Data, source: str) -> str:
        """Return the page; `source` names the JSON it came from."""
        lines = head(result, source, text(self.title, result))
        lines += self.intro(result) if self.intro else []
        if gone := [f"`{part}`" for part in self.retired if rows_of(result, part)]:
            lines += ["", f"No longer measured: {', '.join(gone)}. {BEFORE}"]
        lines += sections(self.make_tables(result))
        lines += self.outro(result) if self.outro else []
        shown = [each for each in self.figures if each.has_data(result)]
        lines += pictures(shown, self.stem or source.removesuffix(".json"))
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


def text(value: Text, result: Data) -> str:
    """Return a text that may be made of the result."""
    return value(result) if callable(value) else value


def rows_of(result: Data, rows: Rows) -> Sequence[Data]:
    """Return the rows that a table or a panel shows; what is not in the result is empty."""
    if callable(rows):
        return rows(result)
    found: Any = result
    for name in rows.split("."):
        found = (found or {}).get(name)
    return found or []


def value_of(row: Data, key: Value) -> Any:
    """Return a value of a row; `a.b` leads into it."""
    if callable(key):
        return key(row)
    if key in row:
        return row[key]
    found: Any = row
    for name in key.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def times(key: str, factor: float) -> Callable[[Data], float | None]:
    """Make the value of a column: a row's figure in another unit."""

    def value(row: Data) -> float | None:
        figure = value_of(row, key)
        return None if figure is None else factor * figure

    return value


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
    found = {(row[line], row[column]): cell_of(row) for row in rows}
    lines = list(dict.fromkeys(row[line] for row in rows))
    body = [[str(name), *(found.get((name, each), "–") for each in columns)] for name in lines]
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
    wanted = row["wanted"]
    if wanted is None or isinstance(wanted, str):
        return wanted or "–"
    side = row.get("side") or ("at most" if row.get("at_most") else "at least")
    return f"{side} {wanted:.4g}"


def _verdict(row: Data) -> str:
    if "verdict" in row:
        told = "**missed**" if row["verdict"] == "missed" else row["verdict"]
        return told + (f": {row['reason']}" if row.get("reason") else "")
    told = {None: "–", True: "met", False: "**missed**"}[row["met"]]
    return f"unmeasured: {row['reason']}" if row.get("reason") else told


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
        *_kept(result),
    ]


def revision(origin: Mapping[str, Any]) -> str:
    """The revision that a result's provenance names, and whether the tree was clean."""
    told = f"revision `{origin['git']}`"
    return f"{told} **+ uncommitted changes**" if origin.get("git_dirty") else told


def _dirty(origin: Mapping[str, Any]) -> list[str]:
    if not origin.get("git_dirty"):
        return []
    return [
        "",
        "> **Measured on a dirty tree**: files differed from this revision, so it does not give "
        "these figures again. Measure anew at a clean revision before quoting them.",
    ]


def _kept(result: Mapping[str, Any]) -> list[str]:
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


def pictures(figures: Sequence[Figure], stem: str) -> list[str]:
    """Link figures, as they lie in `figures/` beside the page."""
    lines: list[str] = []
    for each in figures:
        path = f"figures/{stem}-{each.name}.png"
        lines += ["", f"![{each.caption}]({path})", "", f"*{each.caption}*{each.also}"]
    return ["", "## Figures", *lines] if lines else []


def figures_folder(path: Path) -> Path:
    """Where the figures of the result at `path` lie."""
    return path.parent / "figures"


def cell(value: Any, form: str) -> str:
    """A formatted figure; a dash for what was not measured."""
    return "–" if value is None else form.format(value)


def _threads(origin: Mapping[str, Any]) -> str:
    """Torch threads, and those of a draft process beside."""
    told = f"{origin['threads']} thread(s)"
    draft = origin.get("draft_threads")
    return f"{told} and {draft} of the draft process" if draft else told


def check_matplotlib() -> None:
    """Refuse to go on without matplotlib, before minutes are spent.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise SoonerError(
            "figures need matplotlib, which is not installed; pip install 'sooner-lab[bench]'"
        )


def save(figure: Any, stem: Path) -> str:
    """Write `stem`.png, the one format that pages show; returns its name.

    Its colours are a palette of 256, since figures are in the repository: a third of the bytes.
    """
    from PIL import Image

    path = stem.with_name(f"{stem.name}.png")
    figure.savefig(path, dpi=150, metadata={"Software": None})  # the same data, the same file
    with Image.open(path) as picture:
        opaque = picture.convert("RGB")
    opaque.quantize(256, dither=Image.Dither.NONE).save(path, "PNG", optimize=True)
    return path.name


def _draw_panel(axis: Any, panel: Panel, result: Data) -> None:
    """Draw the series of a panel, and label its axes."""
    rows = rows_of(result, panel.rows)
    keys = (panel.y,) if isinstance(panel.y, str) else panel.y
    series = list(dict.fromkeys(row.get(panel.by) for row in rows)) if panel.by else [None]
    ticks: list[Any] = list(dict.fromkeys(value_of(row, panel.x) for row in rows))
    is_words = any(isinstance(tick, str) for tick in ticks)
    lines = [(name, key) for name in series for key in keys]
    for number, (name, key) in enumerate(lines):
        points = [
            (value_of(row, panel.x), panel.scale * value_of(row, key), row)
            for row in rows
            if (not panel.by or row.get(panel.by) == name) and value_of(row, key) is not None
        ]
        if points:
            look = {
                "color": COLOURS[number % len(COLOURS)],
                "label": _label(panel, keys, name, key),
            }
            at = [ticks.index(x) if is_words else x for x, _, _ in points]
            heights = [y for _, y, _ in points]
            if panel.kind == "bar":
                wide = 0.8 / len(lines)
                shift = (number - (len(lines) - 1) / 2) * wide
                axis.bar([place + shift for place in at], heights, width=wide, **look)
                continue
            marker = MARKERS[number % len(MARKERS)]
            axis.plot(at, heights, marker=marker, ls="" if panel.kind == "mark" else "-", **look)
            if panel.interval and key == keys[0]:
                _draw_band(axis, panel, at, [row for _, _, row in points], look["color"])
    _draw_axes(axis, panel, ticks, is_words)
    if len(lines) > 1:
        axis.legend(fontsize=7)


def _label(panel: Panel, keys: Sequence[str], name: Any, key: str) -> str:
    names = panel.names or {}
    parts = [names.get(key, key)] if len(keys) > 1 else []
    parts += [names.get(str(name), str(name))] if panel.by else []
    return ", ".join(parts)


def _draw_band(axis: Any, panel: Panel, at: list[Any], rows: list[Data], color: str) -> None:
    edges = [value_of(row, panel.interval) for row in rows]
    if all(edges):
        low, high = ([panel.scale * each[side] for each in edges] for side in (0, 1))
        axis.fill_between(at, low, high, color=color, alpha=0.12, linewidth=0)


def _draw_axes(axis: Any, panel: Panel, ticks: list[Any], is_words: bool) -> None:
    if is_words:
        is_long = max(len(str(tick)) for tick in ticks) > 6
        slanted = {"rotation": 30, "ha": "right"} if is_long else {}
        axis.set_xticks(range(len(ticks)), [str(tick) for tick in ticks], fontsize=8, **slanted)
    elif "x" in panel.log:
        axis.set_xscale("log")
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=8)
        axis.set_xticks([], minor=True)
    if "y" in panel.log:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    if panel.level is not None:
        axis.axhline(panel.level, color="#777777", linewidth=0.8, linestyle=":")
    axis.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
    if panel.title:
        axis.set_title(panel.title, fontsize=10)
