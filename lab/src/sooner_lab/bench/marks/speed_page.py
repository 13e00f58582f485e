"""The tables of what was timed on the world of marks."""

from __future__ import annotations

from typing import Any

from ..pages import ReportTable, cell
from .settings import BASELINE_TOKENS, SPARSE_TOKENS

HEADS = [
    "arm", "tokens/s", "× plain", "95 % interval", "draft step, ms", "c", "tokens a round", "M",
    "simulated", "of simulated", "parity",
]  # fmt: skip


def speed_tables(speed: dict[str, Any]) -> list[ReportTable]:
    """Goals, each run, and the windows that were tried."""
    found = [_goals(speed)]
    found += [_run(one) for one in speed["runs"]]
    rows = [_arm(one) for one in speed["windows"]]
    return [*found, ReportTable("Windows by turns, on calibration clips", HEADS, rows, "")]


def baseline_table(told: dict[str, Any]) -> ReportTable:
    """Table 1's baselines, with the draft and with the target as its own."""
    remark = (
        f"{told['batches']} clips, one run each: {BASELINE_TOKENS} draft tokens a round, STD "
        f"{SPARSE_TOKENS}, as in the paper."
    )
    rows = [_arm(one) for one in told["arms"]]
    return ReportTable("The paper's baselines: one row, greedy", HEADS, rows, remark)


def _goals(speed: dict[str, Any]) -> ReportTable:
    rows = [
        [one["goal"], one["wanted"], cell(one["reached"], "{:.2f}"), "yes" if one["met"] else "no"]
        for one in speed["goals"]
    ]
    remark = f"One row, greedy, draft {speed['draft']}; goals were fixed before any result."
    return ReportTable("Speed: goals", ["figure", "wanted", "reached", "met"], rows, remark)


def _run(one: dict[str, Any]) -> ReportTable:
    how = "greedy" if not one["temperature"] else f"temperature {one['temperature']:g}"
    rows = "one row" if one["rows"] == 1 else f"{one['rows']} rows"
    told = [f"{_ratio(found)} the {name} draft by turns" for name, found in one["compared"].items()]
    remark = (
        f"`parallel`, α 0.9, is {' and '.join(told)}, each at its best window. {one['batches']} "
        "batch(es). c: target step over draft step; M: tokens between two rejections; *simulated*: "
        "what step times and agreement allow."
    )
    return ReportTable(f"Speed: {rows}, {how}", HEADS, [_arm(arm) for arm in one["arms"]], remark)


def _ratio(found: dict[str, Any]) -> str:
    if found["value"] is None:
        return "not comparable with"
    low, high = found["interval"]
    return f"{found['value']:.2f} × ({low:.2f} to {high:.2f})"


def _arm(arm: dict[str, Any]) -> list[str]:
    over, step = arm["over_plain"], arm.get("draft_step_seconds")
    edges = over["interval"]
    share = arm.get("share_of_simulation")
    return [
        arm["label"],
        f"{arm['tokens_per_second']:.1f}",
        cell(over["value"], "{:.2f}"),
        "–" if edges is None else f"{edges[0]:.2f} to {edges[1]:.2f}",
        cell(None if step is None else 1e3 * step, "{:.2f}"),
        cell(arm.get("speed_ratio"), "{:.2f}"),
        cell(arm.get("mean_acceptance_length"), "{:.2f}"),
        cell(arm.get("accepted_run_length"), "{:.2f}"),
        cell(arm.get("simulated_speedup"), "{:.2f}"),
        cell(None if share is None else 100 * share, "{:.0f} %"),
        arm["parity"] or "–",
    ]
