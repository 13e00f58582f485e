"""The page of `sooner bench replay`: speed against acceptance, beside theory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..declared import Data
from ..plots import Figure, Panel
from ..render import Page, ReportTable, cell, pivot, revision
from .settings import METHODS, SEQUENTIAL

PLAIN = "target 1"

ABOUT = (
    "> **Replay.** No model here is trained. Decoders with random weights do all the work, and a "
    "script says what their logits decide: a draft token is right with probability *a*. What is "
    "measured is speed at a set acceptance, not what acceptance a method reaches "
    "([how](../replay.md))."
)
SPEEDS = (
    "Decoding speed over plain decoding, and in brackets the share of what theory expects at that "
    "acceptance from the forwards' own times; of a batch, until its last row has ended. `parallel "
    "/ sequential` is over the fastest arm whose draft and target take turns."
)
ACCEPTED = (
    "Of the draft tokens that were judged, the share that was accepted, with the 95 % interval of "
    "a bootstrap over steps, and how many were rejected. Of a tree, levels. Chains have the "
    "script's acceptance; a tree also accepts where a later continuation is right, and the end of "
    "a Jacobi window is filled by copies, which are wrong."
)
FORWARDS = (
    "A forward of the target over one token of each row, others as multiples of it, a draft step, "
    "and their ratio, in the middle of the text: medians of all points. Each point's own are in "
    "the JSON."
)


def faults(result: Data) -> list[str]:
    """List arms without a speed: the text is not the script's, or the acceptance can't be."""
    lines = []
    for arm in arms_of(result):
        name = f"{arm['method']}, rows {arm['rows']}, {arm['pattern']}, {arm['acceptance']}"
        if arm["parity"] == "bug":
            lines.append(f"{name}: the text is not the script's")
        if arm.get("as_scripted") is False:
            lines.append(
                f"{name}: {arm['realized_acceptance']:.1%} of the judged draft tokens were "
                f"accepted, the script has {arm['scripted_acceptance']:.1%}"
            )
    return lines


def arms_of(result: Data, **labels: Any) -> list[Data]:
    """Return the arms of all points with the labels of their point, those with these labels."""
    keys = ("rows", "pattern", "acceptance")
    arms = [
        {**arm, **{key: point[key] for key in keys}}
        for point in result["points"]
        for arm in point["arms"]
    ]
    return [arm for arm in arms if all(arm[key] == value for key, value in labels.items())]


def _tables(result: Data) -> list[ReportTable]:
    """Makes a table for each number of rows and pattern: the arms by acceptance."""
    tables = []
    for rows, pattern in dict.fromkeys(
        (item["rows"], item["pattern"]) for item in result["points"]
    ):
        about = f"{'one row' if rows == 1 else f'{rows} rows'}, {pattern}"
        arms = [
            {**arm, "acceptance": f"a = {arm['acceptance']:g}"}
            for arm in arms_of(result, rows=rows, pattern=pattern)
        ]
        heads, lines = pivot(arms, "method", "acceptance", _speed)
        points = [
            item for item in result["points"] if (item["rows"], item["pattern"]) == (rows, pattern)
        ]
        ratios = [_parallel_gain(point) for point in points]
        if any(ratio is not None for ratio in ratios):
            lines.append(["parallel / sequential", *(cell(item, "{:.2f}×") for item in ratios)])
        tables.append(ReportTable(f"Replay: speed-up, {about}", heads, lines, SPEEDS))
        drafted = {arm["method"] for arm in arms if arm.get("judged")}
        judged = [arm for arm in arms if arm["method"] in drafted]
        if judged:
            heads, lines = pivot(judged, "method", "acceptance", _accepted)
            tables.append(ReportTable(f"Replay: acceptance, {about}", heads, lines, ACCEPTED))
    return tables


def _speed(arm: Data) -> str:
    if arm["method"] == "plain":
        return f"{arm['tokens_per_second']:.0f} tokens/s"
    if "decode_speedup" not in arm:
        return "– red"
    share = arm.get("of_theory")
    text = f"{arm['decode_speedup']:.2f}×"
    return text if share is None else f"{text} ({share:.0%})"


def _parallel_gain(point: Data) -> float | None:
    arms = {arm["method"]: arm for arm in point["arms"] if "decode_speedup" in arm}
    rival = fastest(arms)
    return arms["parallel"]["decode_speedup"] / rival if "parallel" in arms and rival else None


def fastest(arms: Data) -> float:
    """Return the speed-up of the fastest arm whose draft and target take turns; 0 without one."""
    return max((arms[name]["decode_speedup"] for name in SEQUENTIAL if name in arms), default=0.0)


def _accepted(arm: Data) -> str:
    if not arm.get("judged"):
        return "–"
    low, high = arm["acceptance_interval"]
    text = f"{arm['realized_acceptance']:.1%} ({low:.0%}–{high:.0%}; {arm['rejections']})"
    return f"**{text}**" if arm.get("as_scripted") is False else text


def _forwards(result: Data) -> list[ReportTable]:
    lines, names = [], []
    for row in result["steps"]:
        seconds = row["seconds"]
        plain, draft = seconds[PLAIN], seconds["draft 1"]
        names = [name for name in seconds if not name.startswith("draft") and name != PLAIN]
        over = [f"{seconds[name] / plain:.2f}" for name in names]
        ends = [f"{1e3 * draft:.2f}", f"{plain / draft:.1f}"]
        lines.append([str(row["rows"]), f"{1e3 * plain:.2f}", *over, *ends])
    sizes = [
        f"T({what})" if kind == "target" else f"{what}'s tree"
        for kind, what in (name.split() for name in names)
    ]
    heads = ["rows", "T(1), ms", *sizes, "T_q, ms", "c"]
    return [ReportTable("Replay: forwards", heads, lines, FORWARDS)]


def _intro(result: Data) -> list[str]:
    lines = []
    if origin := result.get("theory_provenance"):
        lines = [
            "",
            f"Theory is of {origin['date']} and {revision(origin)}, anew beside what was measured "
            f"then (`{' '.join(origin['argv'])}`).",
        ]
    return [*lines, "", ABOUT]


def _outro(result: Data) -> list[str]:
    lines = []
    if result["left_out"]:
        left_out = "; ".join(result["left_out"])
        lines = ["", f"Left out, since the budget had no room for them: {left_out}."]
    red = faults(result)
    return lines + (["", "## Faults", "", *[f"- {fault}" for fault in red]] if red else [])


def _single_row(method: str) -> Callable[[Data], list[Data]]:
    return lambda result: arms_of(result, rows=1, method=method)


def _batches(method: str) -> Callable[[Data], list[Data]]:
    return lambda result: [
        {**arm, "size": f"{arm['rows']} rows"}
        for arm in arms_of(result, pattern="independent", method=method)
        if arm["rows"] > 1
    ]


def _by_rows(acceptance: float) -> Callable[[Data], list[Data]]:
    def rows(result: Data) -> list[Data]:
        arms = arms_of(result, pattern="independent", acceptance=acceptance)
        is_batched = any(arm["rows"] > 1 for arm in arms)
        return [arm for arm in arms if is_batched and arm["method"] != "plain"]

    return rows


def _panels(rows: Callable[[str], Callable[[Data], list[Data]]], by: str) -> tuple[Panel, ...]:
    """A panel a method: measured speed-up by acceptance, and theory's."""
    return tuple(
        Panel(
            rows(method), "acceptance", ("decode_speedup", "expected_speedup"), "acceptance a",
            "speed-up, ×", by, interval="interval", level=1.0, title=method,
            names={"decode_speedup": "measured", "expected_speedup": "theory"},
        )
        for method in METHODS
        if method != "plain"
    )  # fmt: skip


PAGE = Page(
    "Replay: speed against acceptance",
    (_tables, _forwards),
    (
        Figure(
            "curves",
            "Replay: speed-up of decoding against acceptance, one row, beside theory (no trained "
            "model)",
            _panels(_single_row, "pattern"), size=(3.4, 2.7), columns=3,
        ),
        Figure(
            "batches",
            "Replay: speed-up of batches against acceptance, beside theory",
            _panels(_batches, "size"), size=(3.4, 2.7), columns=3,
        ),
        Figure(
            "rows",
            "Replay: speed-up of decoding against rows, by acceptance",
            tuple(
                Panel(
                    _by_rows(acceptance), "rows", "decode_speedup", "rows", "speed-up, ×",
                    "method", log="x", level=1.0, title=f"a = {acceptance:g}",
                )
                for acceptance in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
            ),
            size=(4.2, 3.6), columns=3,
        ),
    ),
    intro=_intro,
    outro=_outro,
    goals="Fixed before any result.",
)  # fmt: skip
