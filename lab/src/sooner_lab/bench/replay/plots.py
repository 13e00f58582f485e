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
    """A panel a method: measured speed-up by acceptance at one row, with theory's line."""
    points = [point for point in result["points"] if point["rows"] == 1]
    title = "Replay: speed-up of decoding over plain, one row (no trained model)"
    figure, panels = _panels(points, title)
    for axis, method in panels:
        if line := result["curves"].get(method):
            color, _ = LOOK["independent"]
            label = "theory, independent"
            axis.plot(*zip(*line, strict=True), color=color, linewidth=1, label=label)
        for pattern, look in LOOK.items():
            arms = _arms(points, method, pattern)
            if pattern != "independent":
                _theory(axis, arms, pattern, look[0])
            _measured(axis, arms, pattern, look)
    panels[0][0].legend(fontsize=7)
    return figure


def batches(result: Data) -> Any:
    """A panel a method: measured speed-up of batches by acceptance, with theory's lines."""
    points = [point for point in result["points"] if point["rows"] > 1]
    title = "Replay: speed-up of decoding over plain decoding of the same batch"
    figure, panels = _panels(points, title)
    sizes = sorted({point["rows"] for point in points})
    for axis, method in panels:
        for number, rows in enumerate(sizes):
            look = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
            of_size = [point for point in points if point["rows"] == rows]
            arms = _arms(of_size, method, "independent")
            _theory(axis, arms, f"{rows} rows", look[0])
            _measured(axis, arms, f"{rows} rows", look)
    panels[0][0].legend(fontsize=7)
    return figure


def _panels(points: list[Data], title: str) -> tuple[Any, list[tuple[Any, str]]]:
    """A figure with a panel for each method but plain decoding."""
    methods = [arm["method"] for arm in points[0]["arms"] if arm["method"] != "plain"]
    columns = min(3, len(methods))
    figure, panels = subplots(columns, title, (3.4, 2.7), -(-len(methods) // columns))
    for axis, method in zip(panels, methods, strict=False):
        axis.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axis.set_title(method, fontsize=10)
        axis.set(xlabel="acceptance a", ylabel="speed-up, ×")
    for axis in panels[len(methods) :]:
        axis.set_visible(False)
    return figure, list(zip(panels, methods, strict=False))


def _arms(points: list[Data], method: str, pattern: str) -> list[tuple[float, Data]]:
    """A method's figures by acceptance."""
    return [
        (point["acceptance"], arm)
        for point in points
        if point["pattern"] == pattern
        for arm in point["arms"]
        if arm["method"] == method
    ]


def _theory(axis: Any, arms: list[tuple[float, Data]], what: str, color: str) -> None:
    """What is expected at the points that were measured."""
    line = sorted((at, arm["expected_speedup"]) for at, arm in arms if "expected_speedup" in arm)
    if line:
        look = {"color": color, "linestyle": "--", "linewidth": 1, "label": f"theory, {what}"}
        axis.plot(*zip(*line, strict=True), **look)


def _measured(axis: Any, arms: list[tuple[float, Data]], what: str, look: tuple[str, str]) -> None:
    """What was measured, with its intervals, in a colour and with a marker."""
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
            at, speeds, spread, color=look[0], marker=look[1], linestyle="none", markersize=5,
            capsize=2, linewidth=1, label=f"measured, {what}",
        )  # fmt: skip
    axis.set_ylim(bottom=0)


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


FIGURES = {"curves": curves, "batches": batches, "rows": by_rows}
