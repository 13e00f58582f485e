"""What `sooner bench parse` is to reach, each goal with the `key` where its figure stands."""

from __future__ import annotations

from collections.abc import Iterator

from ..goals import goal
from ..run import Data

ENOUGH = 200
"""Held-out pages that exactness is to be shown on."""
AAL, DECODE, E2E, E2E_TEXT, LOST = 5.0, 4.0, 2.0, 3.0, 0.5
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
    """Return a row for each goal that was measured."""
    return [
        *_exact(result),
        *_arms(result),
        *_documents(result),
        *_relaxed(result),
        *_clients(result),
    ]


def _exact(result: Data) -> Iterator[Data]:
    part = result.get("exactness")
    rows = part["rows"] if part else result.get("arms") or []
    for row in rows:
        if row["mode"] == "exact" and (part or row["method"] in PAPER):
            pages = row["pages" if part else "compared"]
            name = f"{row['method']}: pages of {pages} identical to plain decoding"
            key = f"{'exactness.rows' if part else 'arms'}[{row['method']}].identical"
            yield goal(name, max(ENOUGH, pages), row["identical"], key=key)


def _arms(result: Data) -> Iterator[Data]:
    for row in result.get("arms") or []:
        name = row["method"]
        if name not in PAPER:
            continue
        where = f"{name}, {row['pages']} pages"
        if row["aal"] is not None:
            yield goal(f"{where}: AAL of the page's pass", AAL, row["aal"], key=f"arms[{name}].aal")
        for key, what, bound in SPEEDS:
            if row.get(key):
                yield goal(f"{where}: {what}", bound, row[key], key=f"arms[{name}].{key}")


def _documents(result: Data) -> Iterator[Data]:
    for row in (row for row in result.get("document") or [] if row["speedup"]):
        bound = E2E if row["document"] == "scan" else E2E_TEXT
        name = f"{row['document']}, {row['pages']} pages, file to Markdown, {row['method']}"
        key = f"document[{row['document']}/{row['method']}].speedup"
        yield goal(name, bound, row["speedup"], key=key)


def _relaxed(result: Data) -> Iterator[Data]:
    rows = {row["method"]: row for row in result.get("arms") or []}
    for name in PAPER:
        exact, relaxed = (rows.get(each, {}).get("aal") for each in (name, f"{name}-relaxed"))
        if exact is not None and relaxed is not None:
            what = f"{name}-relaxed: AAL, that of tau = 1 wanted"
            yield goal(what, exact, relaxed, key=f"arms[{name}-relaxed].aal")
    for row in (result.get("accuracy") or {}).get("words_lost", []):
        name = f"{row['method']}: points of word accuracy lost"
        key = f"accuracy.words_lost[{row['method']}].points"
        yield goal(name, LOST, row["points"], is_upper=True, key=key)


def _clients(result: Data) -> Iterator[Data]:
    part = result.get("clients") or {"rows": []}
    for row in part["rows"]:
        if row["clients"] is None or row["method"] == "plain":
            continue
        where = f"{row['method']}, {row['clients']} under way"
        key = f"clients.rows[{row['clients']}/{row['method']}]"
        name = f"{where}: pages a second over plain's"
        yield goal(name, FULL_BATCH, row["over_plain"], key=f"{key}.over_plain")
        name = f"{where}: pages identical"
        yield goal(name, part["pages"], row["identical"], key=f"{key}.identical")
