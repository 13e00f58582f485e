"""What `sooner bench parse` is to reach."""

from __future__ import annotations

from collections.abc import Iterator

from ..goals import goal
from ..run import Data

ENOUGH = 200
"""Held-out pages that exactness is to be shown on."""
AAL, DECODE = 5.0, 4.0
PAPER = ("hsd-page", "hsd")
"""Arms at tau = 1: stage 2 alone, and both stages as the paper has them."""
SPEEDS = (
    ("decode_speedup", "decoding over plain, drafting left out", None),
    ("drafted_speedup", "decoding over plain, drafting included (eq. 12)", DECODE),
    ("e2e_speedup", "picture to Markdown, drafter not hidden (eq. 13)", None),
)
"""Key of each speed-up, what it is, and what is wanted: the paper counts drafting."""


def goals(result: Data) -> list[Data]:
    """Return a row for each goal that was measured."""
    return [*_arms(result), *_relaxed(result)]


def _arms(result: Data) -> Iterator[Data]:
    rows = [row for row in result.get("arms") or [] if row["method"] in PAPER]
    for row in rows:
        name = f"{row['method']}: pages of {row['compared']} identical to plain decoding"
        yield goal(name, max(ENOUGH, row["compared"]), row["identical"])
    for row in rows:
        where = f"{row['method']}, {row['pages']} pages"
        if row["aal"] is not None:
            yield goal(f"{where}: AAL of the page's pass", AAL, row["aal"])
        for key, what, bound in SPEEDS:
            if row.get(key):
                yield goal(f"{where}: {what}", bound, row[key])


def _relaxed(result: Data) -> Iterator[Data]:
    rows = {row["method"]: row for row in result.get("arms") or []}
    for name in PAPER:
        exact, relaxed = (rows.get(each, {}).get("aal") for each in (name, f"{name}-relaxed"))
        if exact is not None and relaxed is not None:
            yield goal(f"{name}-relaxed: AAL, that of tau = 1 wanted", exact, relaxed)
