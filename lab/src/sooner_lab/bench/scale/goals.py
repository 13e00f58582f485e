"""The goals of `sooner bench scale`, and whether they were met."""

from __future__ import annotations

from typing import Any

from .settings import ERROR, OVERHEAD, SPEEDUP

Data = dict[str, Any]


def goals(result: Data) -> list[Data]:
    """A row for each goal that was measured."""
    rows = []
    for one in result["ratios"]:
        if one["what"] == "speedup":
            what = f"{one['arm']}: pages a second over {one['over']}"
            rows.append(_row(what, "at least", SPEEDUP, one["value"], one["value"] >= SPEEDUP))
        elif one["arm"] == "ray-1":
            what = f"{one['arm']}: seconds a page more than {one['over']}, start-up apart"
            rows.append(_row(what, "at most", OVERHEAD, one["value"], one["value"] <= OVERHEAD))
    for one in result["predictions"]:
        what = f"{one['arm']}: predicted pages a second off by"
        off = abs(one["error"])
        rows.append(_row(what, "at most", ERROR, off, off <= ERROR))
    digests = {(one["pages"], one["digest"]) for one in result["runs"]}
    lengths = {one["pages"] for one in result["runs"]}
    what = "different outputs of runs of the same pages"
    more = len(digests) - len(lengths)
    rows.append(_row(what, "at most", 0, more, not more))
    return rows


def _row(what: str, side: str, wanted: float, reached: float, is_met: bool) -> Data:
    return {"goal": what, "side": side, "wanted": wanted, "reached": reached, "met": is_met}
