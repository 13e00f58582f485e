"""The figures of an act result, as PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..figures import COLOURS, MARKERS, draw, subplots

Data = dict[str, Any]


def write_figures(result: Data, folder: Path, stem: str) -> list[str]:
    """Draw every figure that the result has data for; returns the files' names.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    return draw({name: FIGURES[name] for name in drawable(result)}, result, folder, stem)


def drawable(result: Data) -> list[str]:
    """Names of the figures that the result has data for."""
    there = {
        "tolerance": bool(result.get("loops")) and bool(result.get("arms")),
        "latency": bool(result.get("arms")),
        "clients": len(result.get("clients") or []) > 1,
    }
    return [name for name in FIGURES if there[name]]


def tolerance(result: Data) -> Any:
    """Figure 4: acceptance length and success against the tolerance."""
    figure, (left, right) = subplots(2, "relaxed acceptance")
    arms = [row for row in result["arms"] if row["method"] == "strict" or row["tolerance"]]
    for number, env in enumerate(result["settings"]["envs"]):
        look = {"color": COLOURS[number], "marker": MARKERS[number], "label": env}
        line = [
            (row["tolerance"] or 0, row["by_env"][number]["mean_acceptance_length"]) for row in arms
        ]
        left.plot(*zip(*line, strict=True), **look)
        _success(right, result["loops"], env, look)
    everything = {"color": "black", "marker": MARKERS[-1], "label": "all"}
    _success(right, result["loops"], "all", everything, interval=True)
    left.set(xlabel="tolerance, bins", ylabel="acceptance length")
    right.set(xlabel="tolerance, bins", ylabel="success, %", ylim=(0, 105))
    left.legend(fontsize=8)
    right.legend(fontsize=8)
    return figure


def _success(axis: Any, rows: list[Data], env: str, look: Data, interval: bool = False) -> None:
    mine = [row for row in rows if row["env"] == env]
    at = [row["tolerance"] for row in mine]
    axis.plot(at, [100 * row["success_rate"] for row in mine], **look)
    if interval:
        low, high = zip(*(row["interval"] for row in mine), strict=True)
        axis.fill_between(
            at, [100 * one for one in low], [100 * one for one in high], color="black", alpha=0.12
        )


def latency(result: Data) -> Any:
    """Median and tail of a call by arm."""
    figure, (axis,) = subplots(1, "milliseconds of an action", (7.5, 3.8))
    rows = [row for row in result["arms"] if "p50_ms" in row]
    places = range(len(rows))
    for key, colour, label in (
        ("p99_ms", COLOURS[5], "p99"), ("p95_ms", COLOURS[4], "p95"), ("p50_ms", COLOURS[0], "p50")
    ):  # fmt: skip
        axis.bar(places, [row[key] for row in rows], color=colour, label=label, width=0.7)
    axis.set_xticks(places, [row["method"] for row in rows], rotation=30, ha="right")
    axis.set_ylabel("ms, from picture to action")
    axis.legend(fontsize=8)
    return figure


def clients(result: Data) -> Any:
    """Throughput and tail latency of the server."""
    figure, (left, right) = subplots(2, "a server under clients")
    method = result["clients"][-1]["method"]  # the policy's own choice
    rows = [row for row in result["clients"] if row["method"] == method]
    at = [row["clients"] for row in rows]
    left.plot(at, [row["requests_per_second"] for row in rows], color=COLOURS[0], marker="o")
    left.set(xlabel="clients", ylabel="requests a second", ylim=(0, None))
    for key, colour, mark in (("p50_ms", COLOURS[0], "o"), ("p99_ms", COLOURS[1], "s")):
        right.plot(at, [row[key] for row in rows], color=colour, marker=mark, label=key[:3])
    right.set(xlabel="clients", ylabel="milliseconds", ylim=(0, None))
    right.legend(fontsize=8)
    return figure


FIGURES: dict[str, Callable[[Data], Any]] = {
    "tolerance": tolerance,
    "latency": latency,
    "clients": clients,
}
