"""The figures of a replay result, as PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..figures import COLOURS, MARKERS, draw, subplots
from .page import drawable

Data = dict[str, Any]

LOOK = {"independent": (COLOURS[0], MARKERS[0]), "clustered": (COLOURS[1], MARKERS[1])}


def write_figures(result: Data, folder: Path, stem: str) -> list[str]:
    """Draw every figure that the result has data for; returns the files' names.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    return draw({name: FIGURES[name] for name in drawable(result)}, result, folder, stem)


def curves(result: Data) -> Any:
    """A panel a method: measured speed-up by acceptance, with theory's line."""
    points = [point for point in result["points"] if point["rows"] == 1]
    methods = [arm["method"] for arm in points[0]["arms"] if arm["method"] != "plain"]
    columns = min(3, len(methods))
    rows = -(-len(methods) // columns)
    title = "Replay: speed-up of decoding over plain, one row (no trained model)"
    figure, panels = subplots(columns, title, (3.4, 2.7), rows)
    for axis, method in zip(panels, methods, strict=False):
        if line := result["curves"].get(method):
            color, _ = LOOK["independent"]
            label = "theory, independent"
            axis.plot(*zip(*line, strict=True), color=color, linewidth=1, label=label)
        for pattern, (color, marker) in LOOK.items():
            _points(axis, points, method, pattern, color, marker)
        axis.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axis.set_title(method, fontsize=10)
        axis.set(xlabel="acceptance a", ylabel="speed-up, ×")
        axis.set_ylim(bottom=0)
    for axis in panels[len(methods) :]:
        axis.set_visible(False)
    panels[0].legend(fontsize=7)
    return figure


def _points(
    axis: Any, points: list[Data], method: str, pattern: str, color: str, marker: str
) -> None:
    """What was measured, with its intervals; where tokens are clustered, theory too."""
    arms = [
        (point["acceptance"], arm)
        for point in points
        if point["pattern"] == pattern
        for arm in point["arms"]
        if arm["method"] == method
    ]
    theory = [(at, arm["expected_speedup"]) for at, arm in arms if "expected_speedup" in arm]
    if theory and pattern != "independent":
        look = {"color": color, "linestyle": "--", "linewidth": 1, "label": f"theory, {pattern}"}
        axis.plot(*zip(*theory, strict=True), **look)
    measured = [(at, arm) for at, arm in arms if "decode_speedup" in arm]
    if measured:
        at = [place for place, _ in measured]
        speeds = [arm["decode_speedup"] for _, arm in measured]
        edges = [arm.get("interval") or [arm["decode_speedup"]] * 2 for _, arm in measured]
        spread = [
            [max(speed - low, 0) for speed, (low, _) in zip(speeds, edges, strict=True)],
            [max(high - speed, 0) for speed, (_, high) in zip(speeds, edges, strict=True)],
        ]
        axis.errorbar(
            at, speeds, spread, color=color, marker=marker, linestyle="none", markersize=5,
            capsize=2, linewidth=1, label=f"measured, {pattern}",
        )  # fmt: skip


def by_rows(result: Data) -> Any:
    """A panel an acceptance: measured speed-up by rows, a line a method."""
    points = [point for point in result["points"] if point["pattern"] == "independent"]
    batched = {point["acceptance"] for point in points if point["rows"] > 1}
    shown = sorted(batched) or sorted({point["acceptance"] for point in points})
    title = "Replay: speed-up of decoding over plain decoding of the same batch"
    figure, panels = subplots(len(shown), title, (4.2, 3.6))
    for axis, acceptance in zip(panels, shown, strict=True):
        lines: dict[str, list[tuple[int, float]]] = {}
        for point in points:
            if point["acceptance"] != acceptance:
                continue
            for arm in point["arms"]:
                if "decode_speedup" in arm and arm["method"] != "plain":
                    place = point["rows"], arm["decode_speedup"]
                    lines.setdefault(arm["method"], []).append(place)
        for number, (method, line) in enumerate(lines.items()):
            axis.plot(
                *zip(*sorted(line), strict=True),
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                linestyle="-" if number < len(COLOURS) else "--",
                linewidth=1.2, markersize=5, label=method,
            )  # fmt: skip
        axis.axhline(1, color="black", linewidth=0.8, linestyle=":")
        rows = sorted({place for line in lines.values() for place, _ in line})
        axis.set_xscale("log", base=2)
        axis.set_xticks(rows, [str(one) for one in rows])
        axis.set_title(f"a = {acceptance:g}", fontsize=10)
        axis.set(xlabel="rows", ylabel="speed-up, ×")
        axis.set_ylim(bottom=0)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure


FIGURES = {"curves": curves, "rows": by_rows}
