"""The figures that are to be reached, beside what a run reached."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .trees import PAPER


def goals(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry a figure: `goal`, `wanted`, `reached`, `met`; what was not measured is left out."""
    arms = {row["method"]: row for row in result.get("arms") or []}
    chosen = f"relaxed r={result['settings']['chosen']}"
    strict, relaxed = arms.get("strict"), arms.get(chosen)
    found = []
    for row in result.get("trees") or []:
        if all(row[name] == value for name, value in asdict(PAPER).items()):
            what = f"acceptance length, {chosen} over strict, both on the paper's tree ({PAPER})"
            found.append(_goal(what, 1.44, row["ratio"]))
    arms_wanted = ((f"{chosen} (chains)", relaxed, 1.42), ("strict (trees)", strict, 1.15))
    for name, row, wanted in arms_wanted:
        if row and "decode_speedup" in row:
            found.append(_goal(f"decoding, {name} over plain", wanted, row["decode_speedup"]))
            found.append(_goal(f"whole action, {name} over plain", None, row["e2e_speedup"]))
    found += _loops(result.get("loops") or [], chosen)
    found += _clients(result.get("clients") or [])
    return found


def _loops(rows: list[dict[str, Any]], chosen: str) -> list[dict[str, Any]]:
    whole = {row["method"]: row for row in rows if row["env"] == "all"}
    if "plain" not in whole or chosen not in whole:
        return []
    low = whole["plain"]["interval"][0]
    what = f"success of {chosen}, plain's interval beginning at {low:.2f}"
    return [_goal(what, low, whole[chosen]["success_rate"])]


def _clients(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """p99 of the most clients may be twice what one batch-wise served queue explains."""
    rows = [row for row in rows if row["method"] == rows[-1]["method"]]
    if len(rows) < 2:
        return []
    one, most = rows[0], rows[-1]
    gain = most["requests_per_second"] / one["requests_per_second"]
    limit = 2 * one["p50_ms"] * most["clients"] / gain
    what = f"{most['clients']} clients: share of the allowed p99 ({limit:.0f} ms)"
    return [
        {"goal": what, "wanted": 1.0, "reached": most["p99_ms"] / limit,
         "met": most["p99_ms"] <= limit, "at_most": True},
        {"goal": f"{most['clients']} clients: requests lost", "wanted": 0, "reached": most["lost"],
         "met": most["lost"] == 0, "at_most": True},
    ]  # fmt: skip


def _goal(what: str, wanted: float | None, reached: float) -> dict[str, Any]:
    met = None if wanted is None else reached >= wanted
    return {"goal": what, "wanted": wanted, "reached": reached, "met": met}
