"""The page of `sooner bench act`: Spec-VLA's table 1 and figure 4 of our robot's world."""

from __future__ import annotations

from typing import Any

from ..declared import Data
from ..plots import Figure, Panel
from ..render import Page, ReportTable, Table, cell


def strict_and_chosen(result: Data) -> list[Data]:
    """Return the rows of the strict arm and of the chosen tolerance."""
    chosen = f"relaxed r={result['settings']['chosen']}"
    return [row for row in result.get("arms") or [] if row["method"] in ("strict", chosen)]


def _success(result: Data, method: str, env: str) -> float | None:
    """An exact arm takes plain decoding's actions, so its episodes are plain's."""
    method = "plain" if method == "strict" else method
    rows = result.get("loops") or []
    matches = (row for row in rows if (row["method"], row["env"]) == (method, env))
    return next((row["success_rate"] for row in matches), None)


def _tasks(result: Data) -> list[ReportTable]:
    """Table 1: success, length and speed by environment."""
    chosen = strict_and_chosen(result)
    if not result.get("arms"):
        return []
    lines = []
    for number, part in enumerate(result["arms"][0]["by_env"]):
        env = part["env"]
        line = [env, cell(_success(result, "plain", env), "{:.0%}")]
        for row in chosen:
            figures = row["by_env"][number]
            line += [
                cell(figures["mean_acceptance_length"], "{:.2f}"),
                cell(figures["decode_speedup"], "{:.2f}×"),
                cell(_success(result, row["method"], env), "{:.0%}"),
            ]
        lines.append(line)
    heads = ["task", "plain success"]
    heads += [
        f"{row['method']} {each}" for row in chosen for each in ("length", "decode", "success")
    ]
    return [ReportTable("By task (table 1)", heads, lines)]


def _points(result: Data) -> list[Data]:
    """Acceptance length by tolerance and task."""
    arms = [
        row for row in result.get("arms") or [] if row["method"] == "strict" or row["tolerance"]
    ]
    return [{**part, "tolerance": row["tolerance"] or 0} for row in arms for part in row["by_env"]]


ARMS: tuple[tuple[Any, str, str], ...] = (
    ("method", "arm", "{}"), ("mode", "mode", "{}"),
    ("mean_acceptance_length", "acceptance length", "{:.2f}"),
    ("decode_speedup", "decode", "{:.2f}×"), ("e2e_speedup", "e2e", "{:.2f}×"),
    ("actions_per_second", "actions/s", "{:.1f}"), ("p50_ms", "p50 ms", "{:.0f}"),
    ("p95_ms", "p95 ms", "{:.0f}"), ("p99_ms", "p99 ms", "{:.0f}"),
    ("theory_speedup", "theory", "{:.2f}×"), ("overhead_share", "outside forwards", "{:.1%}"),
    ("error", "error", "{:.1%}"), ("parity", "parity", "{}"),
)  # fmt: skip
PAGE = Page(
    lambda result: f"Acting: {result['model']}",
    (
        Table(
            "Arms",
            "arms",
            ARMS,
            "One observation at a time. *decode* and *e2e* are speed-ups over `plain`, behind the "
            "first token and from the picture to the action; *theory* is what the arm's own "
            "acceptance and step times allow; *error* is the distance from what was done when the "
            "observations were recorded, in shares of each number's range.",
        ),
        _tasks,
        Table(
            "Closed loops (figure 4)",
            "loops",
            (
                ("method", "arm", "{}"), ("env", "task", "{}"), ("episodes", "episodes", "{}"),
                ("success_rate", "success", "{:.0%}"),
                (lambda row: "{:.0%} to {:.0%}".format(*row["interval"]), "95 % interval", "{}"),
                ("mean_steps", "actions an episode", "{:.0f}"),
                ("actions_per_second", "actions/s, batched", "{:.1f}"),
                ("mean_acceptance_length", "acceptance length", "{:.2f}"),
            ),
            "`strict` takes the actions of `plain`, so its episodes are the same.",
        ),
    ),
    (
        Figure(
            "tolerance",
            "Acceptance length and success by tolerance (figure 4)",
            (
                Panel(
                    _points, "tolerance", "mean_acceptance_length", "tolerance, bins",
                    "acceptance length", by="env",
                ),
                Panel(
                    "loops", "tolerance", "success_rate", "tolerance, bins", "success, %",
                    by="env", scale=100,
                ),
            ),
        ),
        Figure(
            "latency",
            "Milliseconds of an action, by arm",
            (
                Panel(
                    lambda result: [row for row in result.get("arms") or [] if "p50_ms" in row],
                    "method", ("p50_ms", "p95_ms", "p99_ms"), "", "ms, from picture to action",
                    kind="bar",
                ),
            ),
            size=(7.5, 3.8),
        ),
        Figure("clients", "A server under clients", needs="clients"),
    ),
    retired={
        "9362df8": ("distance", "cases", "clients", "weights"), "bee124e2": ("trees",),
    },
)  # fmt: skip
