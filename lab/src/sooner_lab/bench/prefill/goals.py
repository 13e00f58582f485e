"""The figures that are to be reached, beside what a run reached."""

from __future__ import annotations

from typing import Any


def goals(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry a figure: `goal`, `wanted`, `reached`, `recall` of the very run, `met`.

    What was not measured is left out.
    """
    found = []
    if grid := longest(result.get("layer") or [], "grid"):
        where = f"one layer, {grid['tokens']} tokens"
        found.append(_goal(f"{where}: grid over dense, index inside", 8.0, grid, "speedup"))
        found.append(_goal(f"{where}: share of what grid's FLOPs allow", 0.7, grid, "of_allowed"))
    if ours := longest(result.get("model_rows") or [], "ours"):
        what = f"whole prefill, {ours['tokens']} tokens: ours over dense"
        found.append(_goal(what, 3.0, ours, "speedup"))
    return found


def longest(rows: list[dict[str, Any]], method: str) -> dict[str, Any] | None:
    """The row of one arm at the greatest length."""
    mine = [row for row in rows if row["method"] == method]
    return max(mine, key=lambda row: row["tokens"]) if mine else None


def _goal(what: str, wanted: float, row: dict[str, Any], key: str) -> dict[str, Any]:
    reached = row[key]
    told = {"goal": what, "wanted": wanted, "reached": reached, "recall": row.get("recall")}
    return {**told, "met": reached >= wanted}
