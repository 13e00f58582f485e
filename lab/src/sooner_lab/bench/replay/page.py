"""The tables of a replay result, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..pages import ReportTable, cell, goals_table, head, pictures, revision, sections
from .goals import fastest
from .steps import PLAIN

Figures = dict[str, Any]

FIGURES = {
    "curves": "Replay: speed-up of decoding against acceptance, one row; lines are theory",
    "batches": "Replay: speed-up of batches against acceptance; lines are theory",
    "rows": "Replay: speed-up of decoding against rows, by acceptance",
}
ABOUT = (
    "> **Replay.** No model here is trained. Decoders with random weights do all the work, and a "
    "script says what their logits decide: a draft token is right with probability *a*. What is "
    "measured is speed at a set acceptance, not what acceptance a method reaches "
    "([how](../replay.md))."
)


def tables(result: Figures) -> list[ReportTable]:
    """Goals, then of each number of rows and pattern the arms by acceptance, then forwards."""
    found = [goals_table(result["goals"], "at least")] if result["goals"] else []
    for rows, pattern in dict.fromkeys(
        (point["rows"], point["pattern"]) for point in result["points"]
    ):
        points = [
            point
            for point in result["points"]
            if (point["rows"], point["pattern"]) == (rows, pattern)
        ]
        found += [_speeds(points), _acceptance(points)]
    return [*found, _forwards(result["steps"])]


def markdown(result: Figures, source: str) -> str:
    """The page; `source` names the JSON that it came from."""
    lines = head(result, source, "Replay: speed against acceptance")
    if origin := result.get("theory_provenance"):
        lines += [
            "",
            f"Theory is of {origin['date']} and {revision(origin)}, anew beside what was measured "
            f"then (`{' '.join(origin['argv'])}`).",
        ]
    lines += ["", ABOUT]
    lines += pictures({name: FIGURES[name] for name in drawable(result)}, source)
    lines += sections(tables(result))
    if result["left_out"]:
        told = "; ".join(result["left_out"])
        lines += ["", f"Left out, since the budget had no room for them: {told}."]
    red = faults(result)
    if red:
        lines += ["", "## Faults", "", *[f"- {one}" for one in red]]
    return "\n".join(lines) + "\n"


def drawable(result: Figures) -> list[str]:
    """Names of the figures that the result has data for."""
    rows = {point["rows"] for point in result["points"]}
    has_data = {"curves": 1 in rows, "batches": bool(rows - {1}), "rows": len(rows) > 1}
    return [name for name in FIGURES if has_data[name]]


def faults(result: Figures) -> list[str]:
    """Arms that have no speed: their text is not the script's, or their acceptance can't be."""
    found = []
    for point in result["points"]:
        for arm in point["arms"]:
            name = (
                f"{arm['method']}, rows {point['rows']}, {point['pattern']}, {point['acceptance']}"
            )
            if arm["parity"] == "bug":
                found.append(f"{name}: the text is not the script's")
            if arm.get("as_scripted") is False:
                found.append(
                    f"{name}: {arm['realized_acceptance']:.1%} of the judged draft tokens were "
                    f"accepted, the script has {arm['scripted_acceptance']:.1%}"
                )
    return found


def _about(points: Sequence[Figures]) -> str:
    first = points[0]
    rows = "one row" if first["rows"] == 1 else f"{first['rows']} rows"
    return f"{rows}, {first['pattern']}"


def _by_method(points: Sequence[Figures]) -> dict[str, list[Figures]]:
    """Of each method its figures, point by point."""
    found: dict[str, list[Figures]] = {}
    for point in points:
        for arm in point["arms"]:
            found.setdefault(arm["method"], []).append(arm)
    return found


def _speeds(points: Sequence[Figures]) -> ReportTable:
    lines = []
    for method, arms in _by_method(points).items():
        if method == "plain":
            told = [f"{arm['tokens_per_second']:.0f} tokens/s" for arm in arms]
        else:
            told = [_speed(arm) for arm in arms]
        lines.append([method, *told])
    ratios = [_beside(point) for point in points]
    if any(ratio is not None for ratio in ratios):
        lines.append(["parallel / sequential", *[cell(one, "{:.2f}×") for one in ratios]])
    heads = ["method", *[f"a = {point['acceptance']:g}" for point in points]]
    remark = (
        "Decoding speed over plain decoding, and in brackets the share of what theory expects at "
        "that acceptance from the forwards' own times; of a batch, until its last row has ended. "
        "`parallel / sequential` is over the fastest arm whose draft and target take turns."
    )
    return ReportTable(f"Replay: speed-up, {_about(points)}", heads, lines, remark)


def _speed(arm: Figures) -> str:
    if "decode_speedup" not in arm:
        return "– red"
    share = arm.get("of_theory")
    told = f"{arm['decode_speedup']:.2f}×"
    return told if share is None else f"{told} ({share:.0%})"


def _beside(point: Figures) -> float | None:
    arms = {arm["method"]: arm for arm in point["arms"] if "decode_speedup" in arm}
    rival = fastest(arms)
    return arms["parallel"]["decode_speedup"] / rival if "parallel" in arms and rival else None


def _acceptance(points: Sequence[Figures]) -> ReportTable:
    lines = [
        [method, *[_accepted(arm) for arm in arms]]
        for method, arms in _by_method(points).items()
        if any(arm.get("judged") for arm in arms)
    ]
    heads = ["method", *[f"a = {point['acceptance']:g}" for point in points]]
    remark = (
        "Of the draft tokens that were judged, the share that was accepted, with the 95 % interval "
        "of a bootstrap over steps, and how many were rejected. Of a tree, levels. Chains have the "
        "script's acceptance; a tree also accepts where a later continuation is right, and the end "
        "of a Jacobi window is filled by copies, which are wrong."
    )
    return ReportTable(f"Replay: acceptance, {_about(points)}", heads, lines, remark)


def _accepted(arm: Figures) -> str:
    if not arm.get("judged"):
        return "–"
    low, high = arm["acceptance_interval"]
    told = f"{arm['realized_acceptance']:.1%} ({low:.0%}–{high:.0%}; {arm['rejections']})"
    return f"**{told}**" if arm.get("as_scripted") is False else told


def _forwards(steps: Sequence[Figures]) -> ReportTable:
    lines, names = [], []
    for one in steps:
        seconds = one["seconds"]
        plain, draft = seconds[PLAIN], seconds["draft 1"]
        names = [name for name in seconds if not name.startswith("draft") and name != PLAIN]
        over = [f"{seconds[name] / plain:.2f}" for name in names]
        lines.append(
            [
                str(one["rows"]), f"{1e3 * plain:.2f}", *over, f"{1e3 * draft:.2f}",
                f"{plain / draft:.1f}",
            ]
        )  # fmt: skip
    heads = ["rows", "T(1), ms", *[_size(name) for name in names], "T_q, ms", "c"]
    remark = (
        "A forward of the target over one token of each row, others as multiples of it, a draft "
        "step, and their ratio, in the middle of the text: medians of all points. Each point's own "
        "are in the JSON."
    )
    return ReportTable("Replay: forwards", heads, lines, remark)


def _size(name: str) -> str:
    kind, what = name.split()
    return f"T({what})" if kind == "target" else f"{what}'s tree"
