"""Figures that a bench declares as data: panels, axes and series, drawn by matplotlib."""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError

from .declared import Data, Rows, Value, rows_of, value_of

TITLE_CHARS = 12
"""Letters of a title that fit into an inch."""

HEADROOM = 1.06
"""Top of an axis that begins at zero, over its greatest value."""

# Okabe and Ito's colours, which stay apart for the colour-blind, and two more; markers differ too.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#777777"),
    *("#332288", "#8B4513"),
)
MARKERS = "osD^vPx*<>"


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


@dataclass(frozen=True)
class Figure:
    """A figure as a bench declares it.

    Attributes:
        name: behind the result's own in the file's name.
        caption: above it, and below it on a page.
        panels: side by side; without any the picture is of an earlier revision and only linked.
        needs: keys of which the result has to have one, or a function that says whether it has
            the data.
        size: of a panel, inches.
        also: stands behind the caption, such as a link.
        columns: panels side by side; by default all.
        drawing: draws a figure whose panels are not declared; returns matplotlib's.
    """

    name: str
    caption: str
    panels: tuple[Panel, ...] = ()
    needs: str | Callable[[Data], object] = ""
    size: tuple[float, float] = (4.6, 3.8)
    also: str = ""
    columns: int = 0
    drawing: Callable[[Data], Any] | None = None

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
        title = textwrap.fill(self.caption, int(TITLE_CHARS * width * columns))
        figure.suptitle(title, fontsize=11)
        axes = figure.subplots(down, columns, squeeze=False).ravel()
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        for axis, panel in zip(axes, panels, strict=False):
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
            axis.set_axisbelow(True)
            _draw_panel(axis, panel, result)
        _draw_legends(figure, list(axes[: len(panels)]))
        return figure


def pictures(figures: Sequence[Figure], stem: str) -> list[str]:
    """Link figures, as they lie in `figures/` beside the page."""
    lines: list[str] = []
    for each in figures:
        path = f"figures/{stem}-{each.name}.png"
        lines += ["", f"![{each.caption}]({path})", "", f"*{each.caption}*{each.also}"]
    return ["", "## Figures", *lines] if lines else []


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


def _draw_legends(figure: Any, axes: Sequence[Any]) -> None:
    """Draw one legend below all panels where they show the same series, else one in each."""
    legends = [axis.get_legend_handles_labels() for axis in axes]
    handles, labels = legends[0]
    if all(names == labels for _, names in legends):
        if len(labels) > 1:
            columns = min(len(labels), int(2 * figure.get_figwidth() / 3))
            width, height = figure.get_size_inches()
            figure.set_size_inches(width, height + 0.18 * -(-len(labels) // columns))
            figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)
        return
    for axis, (_, names) in zip(axes, legends, strict=True):
        if len(names) > 1:
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
        for set_formatter in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
            set_formatter(_plain_log_formatter())
    else:
        low, high = axis.get_ylim()
        axis.set_ylim(min(0.0, low), max(high, HEADROOM * axis.dataLim.y1))
    if panel.level is not None:
        axis.axhline(panel.level, color="#777777", linewidth=0.8, linestyle=":")
    axis.set(xlabel=panel.xlabel, ylabel=panel.ylabel)


def _plain_log_formatter() -> Any:
    """Return matplotlib's formatter of a logarithmic axis, with numbers as people write them."""
    from matplotlib.ticker import LogFormatter

    class PlainLogFormatter(LogFormatter):
        def _num_to_string(self, v: float, vmin: float, vmax: float) -> str:
            return f"{v:,.0f}" if v >= 1 else f"{v:g}"

    return PlainLogFormatter(minor_thresholds=(1.5, 0.6))
