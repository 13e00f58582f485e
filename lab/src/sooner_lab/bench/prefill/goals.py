"""What `sooner bench prefill` is to reach; fixed before any result."""

from __future__ import annotations

from ..goals import goal
from ..run import Data


def goals(result: Data) -> list[Data]:
    """Return a row for each goal that was measured, with the `recall` of the very run."""
    rows = []
    if grid := longest(result.get("layer") or [], "grid"):
        where, recall = f"one layer, {grid['tokens']} tokens", grid.get("recall")
        name = f"{where}: grid over dense, index inside"
        rows.append(goal(name, 8.0, grid["speedup"], recall=recall))
        name = f"{where}: share of what grid's FLOPs allow"
        rows.append(goal(name, 0.7, grid["of_allowed"], recall=recall))
    if ours := longest(result.get("model_rows") or [], "ours"):
        name = f"whole prefill, {ours['tokens']} tokens: ours over dense"
        rows.append(goal(name, 3.0, ours["speedup"], recall=ours.get("recall")))
    return rows


def longest(rows: list[Data], method: str) -> Data | None:
    """Return the row of one arm at the greatest length."""
    matches = [row for row in rows if row["method"] == method]
    return max(matches, key=lambda row: row["tokens"]) if matches else None
