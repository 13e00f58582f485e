"""The figures of a prefill result, as PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...needles import ResultGrid
from ..figures import COLOURS, draw, subplots
from .needle_plot import needle_heatmap

Data = dict[str, Any]

BLUE, VERMILION, GREEN, PURPLE, ORANGE, _, BLACK = COLOURS
LOOK: dict[str, dict[str, Any]] = {
    "dense": {"color": BLACK, "marker": "x", "label": "dense (fused)"},
    "a-shape": {"color": ORANGE, "marker": "s", "label": "A-shape"},
    "tri-shape": {"color": "#F0E442", "marker": "P", "label": "tri-shape"},
    "strided": {"color": PURPLE, "marker": "D", "label": "strided"},
    "vertical-slash": {"color": VERMILION, "marker": "v", "label": "vertical-slash (MInference)"},
    "grid": {"color": BLUE, "marker": "o", "label": "grid"},
    "planted": {"color": "#999999", "marker": "*", "label": "planted structure"},
    "ours": {"color": GREEN, "marker": "^", "label": "ours (MMInference)"},
}


def write_figures(result: Data, folder: Path, stem: str) -> list[str]:
    """Draw every figure that the result has data for; returns the files' names.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    return draw({name: FIGURES[name] for name in drawable(result)}, result, folder, stem)


def drawable(result: Data) -> list[str]:
    """Names of the figures that the result has data for."""
    needed = {"layer": "layer", "model": "model_rows", "trade": "layer"}
    return [name for name in FIGURES if result.get(needed.get(name, name))]


def layer(result: Data) -> Any:
    """Figure 16: latency of one layer, and how much of it is the index."""
    rows = result["layer"]
    figure, (left, right) = subplots(2, "one attention layer")
    _curves(left, rows, "seconds", "seconds")
    _curves(right, [row for row in rows if row["method"] != "dense"], "index_seconds", None)
    right.set(ylabel="seconds of that for the index")
    return figure


def model(result: Data) -> Any:
    """Figure 10: latency of the whole prefill, and its speed-up."""
    rows = result["model_rows"]
    figure, (left, right) = subplots(2, f"prefill of {result['model']}")
    _curves(left, rows, "seconds", "seconds")
    _curves(right, rows, "speedup", None)
    right.axhline(1, color="#999999", linewidth=0.8)
    right.set(ylabel="times faster than dense", yscale="linear")
    return figure


def trade(result: Data) -> Any:
    """Work against error, and work against time, at the greatest length."""
    rows = result["layer"]
    tokens = max(row["tokens"] for row in rows)
    figure, (left, right) = subplots(2, f"one attention layer, {tokens:,} tokens")
    for row in rows:
        if row["tokens"] != tokens:
            continue
        look = LOOK[row["method"]]
        left.plot(100 * row["flops_share"], row["error"], ls="", markersize=8, **look)
        right.plot(100 * row["flops_share"], row["speedup"], ls="", markersize=8, **look)
    left.set(xlabel="FLOPs, % of dense", ylabel="relative error of the output")
    right.set(xlabel="FLOPs, % of dense", ylabel="times faster than dense", xscale="log")
    shares = [0.5 * 2**power for power in range(9)]
    right.plot(shares, [100 / share for share in shares], "k--", linewidth=0.8, label="allowed")
    right.set(yscale="log")
    left.legend(fontsize=8)
    return figure


def regions(result: Data) -> Any:
    """Figure 12: recall of an index where it was built, and elsewhere."""
    told = result["regions"]
    figure, (axis,) = subplots(1, "where an index holds", (6.5, 3.8))
    shown = axis.imshow(told["recall"], vmin=0, vmax=1, cmap="viridis", aspect="auto")
    axis.grid(False)
    axis.set_xticks(range(len(told["queries"])), told["queries"], rotation=45, ha="right")
    axis.set_yticks(range(len(told["sources"])), [f"index from {one}" for one in told["sources"]])
    for y, line in enumerate(told["recall"]):
        for x, value in enumerate(line):
            shade = "black" if value > 0.6 else "white"
            axis.text(x, y, f"{value:.2f}", ha="center", va="center", color=shade, fontsize=8)
    figure.colorbar(shown, label="recall of attention")
    return figure


def needles(result: Data) -> Any:
    """Figures 5, 13 and 14: right answers by length and depth."""
    return needle_heatmap([ResultGrid.from_dict(grid) for grid in result["needles"]])


def _curves(axis: Any, rows: list[Data], key: str, label: str | None) -> None:
    for method, look in LOOK.items():
        line = [(row["tokens"], row[key]) for row in rows if row["method"] == method]
        if line:
            axis.plot(*zip(*line, strict=True), **look)
    ticks = sorted({row["tokens"] for row in rows})
    axis.set(xscale="log", yscale="log", xlabel="prompt, tokens")
    axis.set_xticks(ticks, [f"{round(tick / 1024)}k" for tick in ticks])
    axis.set_xticks([], minor=True)
    if label is not None:
        axis.set_ylabel(label)
        axis.legend(fontsize=8)


FIGURES: dict[str, Callable[[Data], Any]] = {
    "layer": layer,
    "model": model,
    "trade": trade,
    "regions": regions,
    "needles": needles,
}
"""Figures 16 and 10, a summary, figure 12, and figures 5, 13 and 14."""
