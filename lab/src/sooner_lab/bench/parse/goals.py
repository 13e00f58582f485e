"""The figures that are to be reached, beside what a run reached, each with where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Data = dict[str, Any]

ENOUGH = 200
"""Held-out pages that exactness is to be shown on."""
AAL, DECODE, E2E, E2E_TEXT, WORST, OVERHEAD, LOST = 5.0, 4.0, 2.0, 3.0, 0.95, 0.05, 0.5
FULL_BATCH = 0.97
"""Pages a second with drafts over those without, however many pages are under way."""
PAPER = ("hsd-page", "hsd")
"""Arms at tau = 1: stage 2 alone, and both stages as the paper has them."""
SPEEDS = (
    ("decode_speedup", "decoding over plain, drafting left out", None),
    ("drafted_speedup", "decoding over plain, drafting included (eq. 12)", DECODE),
    ("e2e_speedup", "picture to Markdown, drafter not hidden (eq. 13)", None),
)
"""Key of each speed-up, what it is, and what is wanted: the paper counts drafting."""


def goals(result: Data) -> list[Data]:
    """One entry a figure; what was not measured is left out.

    Returns:
        `goal`, `wanted`, `reached`, `met`, and `key`: where in the result the figure stands, rows
        of a list being named by their `method` (`arm` in `quality`, `document/method` in
        `document`, `clients/method` in `clients`).
    """
    return [
        *_exact(result),
        *_arms(result),
        *_documents(result),
        *_relaxed(result),
        *_garbage(result),
        *_overhead(result),
        *_clients(result),
    ]


def _exact(result: Data) -> Iterator[Data]:
    told = result.get("exactness")
    if told:
        for row in (row for row in told["rows"] if row["mode"] == "exact"):
            key = f"exactness.rows[{row['method']}].identical"
            yield _identical(row["method"], row["pages"], row["identical"], key)
        return
    for row in result.get("arms") or []:
        if row["method"] in PAPER:
            key = f"arms[{row['method']}].identical"
            yield _identical(row["method"], row["compared"], row["identical"], key)


def _identical(name: str, pages: int, same: int, key: str) -> Data:
    """Of the exact arms that have drafts; a tie is no identical page."""
    what = f"{name}: pages of {pages} identical to plain decoding"
    return _goal(what, key, max(ENOUGH, pages), same)


def _arms(result: Data) -> Iterator[Data]:
    rows = {row["method"]: row for row in result.get("arms") or []}
    for name in (name for name in PAPER if name in rows):
        row = rows[name]
        where = f"{name}, {row['pages']} pages"
        if row["aal"] is not None:
            yield _goal(f"{where}: AAL of the page's pass", f"arms[{name}].aal", AAL, row["aal"])
        for key, what, wanted in SPEEDS:
            if row.get(key):
                yield _goal(f"{where}: {what}", f"arms[{name}].{key}", wanted, row[key])


def _documents(result: Data) -> Iterator[Data]:
    for row in (row for row in result.get("document") or [] if row["speedup"]):
        wanted = E2E if row["document"] == "scan" else E2E_TEXT
        what = f"{row['document']}, {row['pages']} pages, file to Markdown, {row['method']}"
        key = f"document[{row['document']}/{row['method']}].speedup"
        yield _goal(what, key, wanted, row["speedup"])


def _relaxed(result: Data) -> Iterator[Data]:
    rows = {row["method"]: row for row in result.get("arms") or []}
    for name in PAPER:
        exact, relaxed = rows.get(name), rows.get(f"{name}-relaxed")
        if exact and relaxed and exact["aal"] is not None and relaxed["aal"] is not None:
            what = f"{name}-relaxed: AAL, that of tau = 1 wanted"
            yield _goal(what, f"arms[{name}-relaxed].aal", exact["aal"], relaxed["aal"])
    for row in (result.get("accuracy") or {}).get("words_lost", []):
        what = f"{row['method']}: points of word accuracy lost"
        key = f"accuracy.words_lost[{row['method']}].points"
        yield _goal(what, key, LOST, row["points"], at_most=True)


def _garbage(result: Data) -> Iterator[Data]:
    """Of decoding, and from end to end with the drafter whose work was for nothing."""
    for row in (result.get("quality") or {}).get("garbage", []):
        where = f"drafts that are never right, {row['arm']}, {row['pages']} pages"
        for key, what, _ in SPEEDS:
            if row.get(key):
                is_goal = key == "decode_speedup" and row["arm"] == "hsd-page"
                name = f"quality.garbage[{row['arm']}].{key}"
                yield _goal(f"{where}: {what}", name, WORST if is_goal else None, row[key])


def _overhead(result: Data) -> Iterator[Data]:
    told = result.get("overhead") or {}
    if "share" in told:
        what = f"alignment, tree and mask, share of a step ({told['draft_tokens']} draft tokens)"
        yield _goal(what, "overhead.share", OVERHEAD, told["share"], at_most=True)


def _clients(result: Data) -> Iterator[Data]:
    told = result.get("clients") or {"rows": []}
    for row in told["rows"]:
        if row["clients"] is None or row["method"] == "plain":
            continue
        where = f"{row['clients']}/{row['method']}"
        what = f"{row['method']}, {row['clients']} under way: pages a second over plain's"
        key = f"clients.rows[{where}].over_plain"
        yield _goal(what, key, FULL_BATCH, row["over_plain"])
        key, what = f"clients.rows[{where}].identical", f"{what.partition(':')[0]}: pages identical"
        yield _goal(what, key, told["pages"], row["identical"])


def _goal(what: str, key: str, wanted: float | None, reached: float, at_most: bool = False) -> Data:
    met = None
    if wanted is not None:
        met = reached <= wanted if at_most else reached >= wanted
    told = {"goal": what, "key": key, "wanted": wanted, "reached": reached, "met": met}
    return {**told, "at_most": True} if at_most else told
