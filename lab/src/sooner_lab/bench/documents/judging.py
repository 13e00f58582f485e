"""Rates over pages with their intervals, the gate, and the goals, held against `settings`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..intervals import RESAMPLES, quotient
from .settings import (
    AAL_RANGE,
    BLIND_AAL,
    BOX_PIXELS,
    HIERARCHY,
    KEPT,
    ORACLE_AAL,
    OVER_LITERAL,
    DocumentsSettings,
)

Figures = dict[str, Any]


def rows_of(readings: Iterable[Figures], **wanted: Any) -> list[Figures]:
    """Readings with these values."""
    return [one for one in readings if all(one[name] == value for name, value in wanted.items())]


def aal(rows: Sequence[Figures], seed: int) -> Figures:
    """Accepted draft tokens a verification step (eq. 14), all pages together, pages drawn whole."""
    if not rows:
        return {"value": None, "interval": None}
    accepted = np.array([one["accepted"] for one in rows], float)
    steps = np.array([one["steps"] for one in rows], float)
    picks = np.random.default_rng(seed).integers(len(rows), size=(RESAMPLES, len(rows)))
    spread = accepted[picks].sum(1) / np.maximum(steps[picks].sum(1), 1)
    low, high = np.percentile(spread, (2.5, 97.5))
    value = float(accepted.sum() / max(steps.sum(), 1))
    return {"value": value, "interval": [float(low), float(high)]}


def speedup(
    rows: Sequence[Figures], base: Sequence[Figures], clock: str, seed: int, drafter: bool = False
) -> Figures:
    """Tokens a second over those of other rows of the same pages, by one clock.

    Args:
        clock: of the readings' names, of both sides: clocks are never mixed.
        drafter: add the drafter's measured seconds, for clocks that do not hold them.
    """
    others = {one["page"]: one for one in base}
    pairs = [(one, others[one["page"]]) for one in rows if one["page"] in others]

    def seconds(one: Figures) -> float:
        return float(one[clock] + (one["draft_seconds"] if drafter else 0.0))

    return quotient(
        ([own["tokens"] for own, _ in pairs], [seconds(own) for own, _ in pairs]),
        ([other["tokens"] for _, other in pairs], [seconds(other) for _, other in pairs]),
        seed,
    )


def gate(readings: Sequence[Figures], settings: DocumentsSettings) -> list[Figures]:
    """What decides whether these pages may judge; a line each, those without a reading left out."""
    ocr = rows_of(readings, part="counts", method="paper-literal")
    sides: list[tuple[str, list[Figures], Callable[[float], bool], str]] = [
        ("paper-literal, OCR", ocr, lambda value: AAL_RANGE[0] <= value <= AAL_RANGE[1],
         f"{AAL_RANGE[0]:g} to {AAL_RANGE[1]:g}"),
        ("oracle: hsd-page, the page's truth", rows_of(readings, part="gate", drafter="truth"),
         lambda value: value >= ORACLE_AAL, f"at least {ORACLE_AAL:g}"),
        ("blind: hsd-page, another page's truth", rows_of(readings, part="gate", drafter="other"),
         lambda value: value <= BLIND_AAL, f"at most {BLIND_AAL:g}"),
    ]  # fmt: skip
    found = []
    for what, rows, passes, wanted in sides:
        reached = aal(rows, settings.seed)
        if reached["value"] is not None:
            is_passed = passes(reached["value"])
            found.append({"gate": what, "wanted": wanted, **reached, "passed": is_passed})
    wrong = sum(not one["is_exact"] for one in readings)
    found.append(
        {"gate": "texts that are not the page's", "wanted": "0", "value": float(wrong),
         "interval": None, "passed": not wrong}
    )  # fmt: skip
    return found


def goals(readings: Sequence[Figures], settings: DocumentsSettings) -> list[Figures]:
    """Goals and what was reached; lower bounds of intervals count."""
    seed = settings.seed
    counts = rows_of(readings, part="counts", drafter="ocr")
    page, both = (rows_of(counts, method=name) for name in ("hsd-page", "hsd"))
    literal = rows_of(counts, method="paper-literal")
    found = []
    if page and both:
        reached = speedup(both, page, "priced_decode", seed)
        found.append(("hsd over hsd-page, priced decoding", HIERARCHY, reached))
    unsure = rows_of(counts, method="hsd-unsure")
    if page and unsure:
        reached = speedup(unsure, page, "priced_decode", seed)
        found.append(("hsd-unsure over hsd-page, priced decoding", HIERARCHY, reached))
    if page and literal:
        reached = speedup(page, literal, "steps", seed)
        found.append(("hsd-page over paper-literal, forwards of the page", OVER_LITERAL, reached))
    right, wrong = (
        rows_of(readings, part="boxes", drafter=f"boxes {pixels}") for pixels in (0, BOX_PIXELS)
    )
    if right and wrong:
        reached = quotient(
            ([one["accepted"] for one in wrong], [one["steps"] for one in wrong]),
            ([one["accepted"] for one in right], [one["steps"] for one in right]),
            seed,
        )
        found.append((f"accepted length kept, boxes ± {BOX_PIXELS} px", KEPT, reached))
    return [
        {"goal": what, "wanted": wanted, **reached, "met": bool(reached["interval"][0] >= wanted)}
        for what, wanted, reached in found
        if reached["interval"] is not None
    ]
