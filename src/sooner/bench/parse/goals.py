"""The figures that are to be reached, beside what a run reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Data = dict[str, Any]

ENOUGH = 200
"""Held-out pages that exactness is to be shown on."""
AAL, DECODE, E2E, E2E_TEXT, WORST, OVERHEAD, LOST = 5.0, 4.0, 2.0, 3.0, 0.95, 0.05, 0.5
PAPER = ("hsd-page", "hsd")
"""Arms at tau = 1: stage 2 alone, and both stages as the paper has them."""


def goals(result: Data) -> list[Data]:
    """One entry a figure: `goal`, `wanted`, `reached`, `met`; what was not measured is left out."""
    return [
        *_exact(result),
        *_arms(result),
        *_documents(result),
        *_relaxed(result),
        *_garbage(result),
        *_overhead(result),
    ]


def _exact(result: Data) -> Iterator[Data]:
    told = result.get("exactness")
    if told:
        for row in (row for row in told["rows"] if row["mode"] == "exact"):
            same = row["identical"] + len(row["ties"])
            what = f"{row['method']}: pages of {row['pages']} identical to plain decoding"
            wanted = max(ENOUGH, row["pages"])
            yield _goal(what, wanted, same)
        return
    for row in result.get("arms") or []:
        if row["method"] in PAPER:
            what = f"{row['method']}: pages of {row['compared']} identical to plain decoding"
            yield _goal(what, max(ENOUGH, row["compared"]), row["identical"])


def _arms(result: Data) -> Iterator[Data]:
    rows = {row["method"]: row for row in result.get("arms") or []}
    for name in (name for name in PAPER if name in rows):
        if rows[name]["aal"] is not None:
            yield _goal(f"{name}: AAL", AAL, rows[name]["aal"])
        if rows[name].get("decode_speedup"):
            yield _goal(f"{name}: decoding over plain", DECODE, rows[name]["decode_speedup"])
        if rows[name].get("e2e_speedup"):
            what = f"{name}: one page, picture to Markdown, drafter not hidden"
            yield _goal(what, None, rows[name]["e2e_speedup"])


def _documents(result: Data) -> Iterator[Data]:
    for row in (row for row in result.get("document") or [] if row["speedup"]):
        wanted = E2E if row["document"] == "scan" else E2E_TEXT
        what = f"{row['document']}, {row['pages']} pages, file to Markdown, {row['method']}"
        yield _goal(what, wanted, row["speedup"])


def _relaxed(result: Data) -> Iterator[Data]:
    rows = {row["method"]: row for row in result.get("arms") or []}
    for name in PAPER:
        exact, relaxed = rows.get(name), rows.get(f"{name}-relaxed")
        if exact and relaxed and exact["aal"] is not None and relaxed["aal"] is not None:
            yield _goal(
                f"{name}-relaxed: AAL, that of tau = 1 wanted", exact["aal"], relaxed["aal"]
            )
    for row in (result.get("accuracy") or {}).get("words_lost", []):
        what = f"{row['method']}: points of word accuracy lost"
        yield _goal(what, LOST, row["points"], at_most=True)


def _garbage(result: Data) -> Iterator[Data]:
    for row in (result.get("quality") or {}).get("garbage", []):
        if row.get("decode_speedup"):
            wanted = WORST if row["arm"] == "hsd-page" else None
            what = f"drafts that are never right, {row['arm']}: decoding over plain"
            yield _goal(what, wanted, row["decode_speedup"])


def _overhead(result: Data) -> Iterator[Data]:
    told = result.get("overhead") or {}
    if "share" in told:
        what = f"alignment, tree and mask, share of a step ({told['draft_tokens']} draft tokens)"
        yield _goal(what, OVERHEAD, told["share"], at_most=True)


def _goal(what: str, wanted: float | None, reached: float, at_most: bool = False) -> Data:
    met = None
    if wanted is not None:
        met = reached <= wanted if at_most else reached >= wanted
    told = {"goal": what, "wanted": wanted, "reached": reached, "met": met}
    return {**told, "at_most": True} if at_most else told
