"""The tables of an act result, for the terminal and for Markdown."""

from __future__ import annotations

from typing import Any

from ..pages import ReportTable, cell, head, pictures, sections
from .clients_table import clients_table

FIGURES = {
    "tolerance": "Acceptance length and success by tolerance (figure 4)",
    "latency": "Milliseconds of an action, by arm",
    "clients": "A server under clients",
}
ARMS = (
    ("mode", "mode", "{}"), ("mean_acceptance_length", "acceptance length", "{:.2f}"),
    ("decode_speedup", "decode", "{:.2f}×"), ("e2e_speedup", "e2e", "{:.2f}×"),
    ("actions_per_second", "actions/s", "{:.1f}"), ("p50_ms", "p50 ms", "{:.0f}"),
    ("p95_ms", "p95 ms", "{:.0f}"), ("p99_ms", "p99 ms", "{:.0f}"),
    ("theory_speedup", "theory", "{:.2f}×"), ("overhead_share", "outside forwards", "{:.1%}"),
    ("error", "error", "{:.1%}"), ("parity", "parity", "{}"),
)  # fmt: skip
TREES = (
    ("strict", "strict length", "{:.2f}"), ("relaxed", "relaxed r={r} length", "{:.2f}"),
    ("ratio", "ratio", "{:.2f}"), ("strict_run_length", "strict M", "{:.2f}"),
    ("relaxed_run_length", "relaxed M", "{:.2f}"),
    ("strict_speedup", "strict decode", "{:.2f}×"),
    ("relaxed_speedup", "relaxed decode", "{:.2f}×"), ("parity", "strict parity", "{}"),
)  # fmt: skip
LOOPS = (
    ("episodes", "episodes", "{}"), ("success_rate", "success", "{:.0%}"),
    ("mean_steps", "actions an episode", "{:.0f}"),
    ("actions_per_second", "actions/s, batched", "{:.1f}"),
    ("mean_acceptance_length", "acceptance length", "{:.2f}"),
)  # fmt: skip


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """Every table that the result has figures for, the goals first."""
    found = [_goals(result["goals"])] if result.get("goals") else []
    if arms := result.get("arms"):
        found += [
            _arms(arms),
            _main(result),
            *_distribution(arms, result),
            *_positions(arms, result),
        ]
    if rows := result.get("trees"):
        found.append(_trees(rows, result))
    if told := result.get("distance"):
        found.append(_distance(told, result["horizon"]))
    if rows := result.get("loops"):
        found.append(_loops(rows))
    if rows := result.get("clients"):
        found.append(clients_table(rows))
    if rows := result.get("weights"):
        found.append(_weights(rows))
    if told := result.get("cases"):
        found.append(_cases(told))
    return found


def markdown(result: dict[str, Any], source: str) -> str:
    """The page of one result."""
    from .plots import drawable

    captions = {name: text for name, text in FIGURES.items() if name in drawable(result)}
    lines = head(result, source, f"Acting: {result['model']}")
    lines += sections(tables(result)) + pictures(captions, source)
    return "\n".join(lines) + "\n"


def _goals(goals: list[dict[str, Any]]) -> ReportTable:
    rows = []
    for one in goals:
        side = "at most" if one.get("at_most") else "at least"
        wanted = "–" if one["wanted"] is None else f"{side} {one['wanted']:.3g}"
        met = {None: "–", True: "yes", False: "no"}[one["met"]]
        rows.append([one["goal"], wanted, f"{one['reached']:.2f}", met])
    return ReportTable("Goals", ["figure", "wanted", "reached", "met"], rows)


def _arms(arms: list[dict[str, Any]]) -> ReportTable:
    rows = [[row["method"], *_cells(row, ARMS)] for row in arms]
    remark = (
        "One observation at a time. *decode* and *e2e* are speed-ups over `plain`, behind the "
        "first token and from the picture to the action; *theory* is what the arm's own "
        "acceptance and step times allow; *error* is the distance from what was done when the "
        "observations were recorded, in shares of each number's range."
    )
    return ReportTable("Arms", ["arm", *_heads(ARMS)], rows, remark)


def _main(result: dict[str, Any]) -> ReportTable:
    """Table 1: success, length and speed by environment."""
    arms = {row["method"]: row for row in result["arms"]}
    shown = [
        name for name in ("strict", f"relaxed r={result['settings']['chosen']}") if name in arms
    ]
    success = {(row["method"], row["env"]): row for row in result.get("loops") or []}
    rows = []
    for number, env in enumerate(one["env"] for one in result["arms"][0]["by_env"]):
        line = [env, _rate(success.get(("plain", env)))]
        for name in shown:
            part = arms[name]["by_env"][number]
            line += [
                cell(part["mean_acceptance_length"], "{:.2f}"),
                cell(part["decode_speedup"], "{:.2f}×"),
                # Exact arms take the same actions, so their episodes are plain's.
                _rate(success.get(("plain" if name == "strict" else name, env))),
            ]
        rows.append(line)
    heads = ["task", "plain success"]
    heads += [f"{name} {what}" for name in shown for what in ("length", "decode", "success")]
    return ReportTable("By task (table 1)", heads, rows)


def _distribution(arms: list[dict[str, Any]], result: dict[str, Any]) -> list[ReportTable]:
    """Table 2: how many draft tokens a round accepted."""
    kept = _strict_and_chosen(arms, result)
    most = max((int(count) for row in kept for count in row["acceptance_histogram"]), default=0)
    rows = []
    for row in kept:
        for part in row["by_env"]:
            seen = {int(k): v for k, v in (part["acceptance_histogram"] or {}).items()}
            total = max(sum(seen.values()), 1)
            shares = [f"{seen.get(count, 0) / total:.1%}" for count in range(most + 1)]
            rows.append([part["env"], row["method"], *shares])
    heads = ["task", "arm", *map(str, range(most + 1))]
    return [ReportTable("Accepted draft tokens of a round (table 2)", heads, rows)] if rows else []


def _positions(arms: list[dict[str, Any]], result: dict[str, Any]) -> list[ReportTable]:
    """Table 3: accepted draft tokens by where a round began."""
    kept = _strict_and_chosen(arms, result)
    most = max((int(place) for row in kept for place in row["positions"]), default=-1)
    rows = []
    for row in kept:
        for part in row["by_env"]:
            seen = {int(place): mean for place, mean in part["positions"].items()}
            means = [cell(seen.get(place), "{:.2f}") for place in range(most + 1)]
            rows.append([part["env"], row["method"], *means])
    heads = ["task", "arm", *map(str, range(most + 1))]
    remark = "Position 0 is behind the first token, which the prefill says."
    return [ReportTable("Accepted by position (table 3)", heads, rows, remark)] if rows else []


def _trees(rows: list[dict[str, Any]], result: dict[str, Any]) -> ReportTable:
    chosen = result["settings"]["chosen"]
    body = [[row["tree"], *_cells(row, TREES)] for row in rows]
    remark = (
        f"Strict and relaxed (r = {chosen}) drafts of the same shape, so that a ratio is of "
        "acceptance alone. Spec-VLA's table 4 gives depth 5, its section 5.1 depth 4; the goal is "
        "at depth 5. Strict trees of many siblings hold the neighbours that a tolerance would let "
        "pass, so it adds little to them; to a chain it adds most."
    )
    heads = ["tree", *(head.format(r=chosen) for head in _heads(TREES))]
    return ReportTable("The same tree, strict and relaxed", heads, body, remark)


def _distance(told: dict[str, Any], horizon: int) -> ReportTable:
    rows = [
        [row["method"], f"{row['same']:.0%}", *map(_mean_and_most, row["mean"], row["max"])]
        for row in told["arms"]
    ]
    remark = (
        "Mean and largest distance from plain decoding's action, in the action's own units, over "
        f"{told['observations']} observations of {horizon} steps each."
    )
    if near := told["steps"]:
        remark += (
            f" From one step of an action to the next, {near['same']:.0%} of {near['numbers']} "
            f"numbers stay the same, {near['within_1']:.0%} move by 1 bin at most, "
            f"{near['within_chosen']:.0%} by the chosen tolerance at most: a draft that copies the "
            "step before is right, or near enough, as often. Policies whose actions have one step "
            "offer no such copy."
        )
    count = len(told["arms"][0]["mean"]) if told["arms"] else 0
    names = told["names"] or range(count)
    heads = ["arm", "same number", *map(str, names)]
    return ReportTable("Distance from the exact action", heads, rows, remark)


def _mean_and_most(mean: float, most: float) -> str:
    return f"{mean:.2g} / {most:.2g}"


def _loops(rows: list[dict[str, Any]]) -> ReportTable:
    body = []
    for row in rows:
        low, high = row["interval"]
        cells = _cells(row, LOOPS)
        cells.insert(2, f"{low:.0%} to {high:.0%}")
        body.append([row["method"], row["env"], *cells])
    heads = _heads(LOOPS)
    heads.insert(2, "95 % interval")
    remark = "`strict` takes the actions of `plain`, so its episodes are the same."
    return ReportTable("Closed loops (figure 4)", ["arm", "task", *heads], body, remark)


def _weights(rows: list[dict[str, Any]]) -> ReportTable:
    columns = (
        ("plain_speed", "plain against fp", "{:.2f}×"),
        ("speedup", "relaxed against its own plain", "{:.2f}×"),
        ("same_action", "same number as fp", "{:.0%}"), ("note", "", "{}"),
    )  # fmt: skip
    body = [[row["weights"], *_cells(row, columns)] for row in rows]
    return ReportTable("Quantised weights (tables 5, 6)", ["weights", *_heads(columns)], body)


def _cases(told: list[dict[str, Any]]) -> ReportTable:
    rows = []
    for case in told:
        for arm, rounds in case["arms"].items():
            said = " · ".join(_round(one) for one in rounds)
            rows.append([case["instruction"], arm, str(len(rounds)), said])
    remark = "Bins as each round added them; drafted ones in brackets, the target's own behind."
    heads = ["instruction", "arm", "rounds", "bins"]
    return ReportTable("Single actions (figure 5)", heads, rows, remark)


def _round(one: dict[str, Any]) -> str:
    drafted, own = one["bins"][: one["drafted"]], one["bins"][one["drafted"] :]
    parts = [f"[{', '.join(map(str, drafted))}]"] if drafted else []
    return " ".join([*parts, *map(str, own)])


def _strict_and_chosen(arms: list[dict[str, Any]], result: dict[str, Any]) -> list[dict[str, Any]]:
    chosen = result["settings"]["chosen"]
    return [row for row in arms if row["method"] in ("strict", f"relaxed r={chosen}")]


def _rate(row: dict[str, Any] | None) -> str:
    return "–" if row is None else f"{row['success_rate']:.0%}"


def _heads(columns: tuple) -> list[str]:
    return [name for _, name, _ in columns]


def _cells(row: dict[str, Any], columns: tuple) -> list[str]:
    return [cell(row.get(key), form) for key, _, form in columns]
