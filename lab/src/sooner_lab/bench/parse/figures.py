"""Figures over pages: ratios of totals with their intervals, by arm and by kind of page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..run import quotient
from .sheets import KINDS

Data = dict[str, Any]
SPEEDS = {
    "decode_speedup": "decode",
    "drafted_speedup": "drafted",
    "e2e_speedup": "e2e",
}
"""Name of each speed-up, and the seconds of a page that it is the ratio of."""


def ratio(
    base: Sequence[float],
    arm: Sequence[float],
    seed: int,
    tokens: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Data:
    """Total of `base` over total of `arm`, with the 95 % interval of a bootstrap over pages.

    Args:
        tokens: of each page, of both: what is compared then is the time of a token.
    """
    pages = [1.0] * len(base)
    ours, base_tokens = tokens or (pages, pages)
    return quotient((base, ours), (arm, base_tokens), seed)


def arm_rows(pages: Sequence[Data], names: Sequence[str], seed: int) -> list[Data]:
    """A row for each arm over all pages, with `by_kind` inside.

    Pages that plain decoding or the arm itself did not bring to an end count for nothing but
    `truncated`, which names them.

    Args:
        pages: of `speed.Course`: `number`, `kinds`, and a record of each arm in `arms`.
    """
    return [_row(pages, name, seed) for name in names]


def _row(pages: Sequence[Data], name: str, seed: int) -> Data:
    mine = [page for page in pages if name in page["arms"]]
    counted = [page for page in mine if _counts(page, name)]
    figures: Data = {
        "method": name,
        "mode": mine[0]["arms"][name]["mode"] if mine else None,
        "pages": len(counted),
        "truncated": [page["number"] for page in mine if not _counts(page, name)],
        **_sameness(mine, name),
    }
    is_red = figures["parity"] == "bug"
    figures |= _counts_of(counted, name)
    if counted and not is_red:
        figures |= _speeds(counted, name, seed)
    figures["by_kind"] = [_of_kind(counted, name, kind, seed, is_red) for kind in KINDS]
    return figures


def _counts(page: Data, name: str) -> bool:
    """Whether a page says anything about speed."""
    return not page["arms"]["plain"]["truncated"] and not page["arms"][name]["truncated"]


def _sameness(pages: Sequence[Data], name: str) -> Data:
    same = [page["arms"][name]["same"] for page in pages]
    verdicts = {page["arms"][name]["verdict"] for page in pages}
    exact = bool(pages) and pages[0]["arms"][name]["mode"] == "exact"
    worst = next((result for result in ("bug", "tie", "identical") if result in verdicts), None)
    return {
        "identical": sum(same),
        "compared": len(same),
        "parity": worst if exact else None,
    }


def _counts_of(pages: Sequence[Data], name: str) -> Data:
    arms = [page["arms"][name] for page in pages]
    forwards = [arm["forwards"] for arm in arms]
    return {
        "tokens": sum(arm["tokens"] for arm in arms),
        "forwards": sum(forwards) / len(arms) if arms and None not in forwards else None,
        "tokens_a_forward": sum(arm["tokens"] for arm in arms) / sum(forwards)
        if arms and None not in forwards
        else None,
        "region_forwards": sum(arm["region_forwards"] for arm in arms) / len(arms)
        if arms
        else None,
        "aal": _mean(arms, "accepted", "steps"),
        "aal_regions": _mean(arms, "region_accepted", "region_steps"),
        "path_rate": _mean(arms, "accepted", "levels"),
    }


def _mean(arms: Sequence[Data], accepted: str, steps: str) -> float | None:
    """Accepted draft tokens over all pages together: a verification step (eq. 14), or of those
    that the deepest path of each tree offered."""
    total = sum(arm[steps] or 0 for arm in arms)
    return sum(arm[accepted] or 0 for arm in arms) / total if total else None


def _speeds(pages: Sequence[Data], name: str, seed: int) -> Data:
    figures: Data = {}
    # A lossy text that ends early is no faster for it: in decoding, times of a token are compared.
    tokens = tuple([page["arms"][arm]["tokens"] for page in pages] for arm in ("plain", name))
    for speed, kind in SPEEDS.items():
        quotient_row = ratio(
            [seconds(page, "plain", kind) for page in pages],
            [seconds(page, name, kind) for page in pages],
            seed,
            (tokens[0], tokens[1]) if kind == "decode" else None,
        )
        figures[speed], figures[f"{speed}_interval"] = (
            quotient_row["value"],
            quotient_row["interval"],
        )
    spent = [seconds(page, name, "e2e") for page in pages]
    figures["seconds_a_page"] = sum(spent) / len(spent)
    made = [page["arms"][name]["drafter"] + page["arms"][name]["making"] for page in pages]
    figures["draft_seconds_a_page"] = sum(made) / len(made)
    figures["decode_seconds_a_page"] = sum(seconds(page, name, "decode") for page in pages) / len(
        pages
    )
    return figures


def seconds(page: Data, name: str, kind: str) -> float:
    """Seconds of an arm on a page.

    `decode` is in decoding loops alone, those of stage 1 included, and leaves drafting out;
    `drafted` is the paper's (eq. 12): it adds all that is made for the draft's sake (the drafter,
    stage 1 with its crops' prefill, a draft model's prefill); `e2e` is from
    picture to Markdown, the drafter before it and hidden behind nothing (eq. 13).
    """
    arm = page["arms"][name]
    drafter = arm["drafter"]
    if kind == "decode":
        return float(arm["decode"])
    if kind == "drafted":
        return float(arm["decode"] + arm["drafting"] + drafter)
    return float(arm["e2e"] + drafter)


def _of_kind(pages: Sequence[Data], name: str, kind: str, seed: int, is_red: bool) -> Data:
    part = [page for page in pages if kind in page["kinds"]]
    figures: Data = {"kind": kind, "pages": len(part), **_counts_of(part, name)}
    if part and not is_red:
        figures |= _speeds(part, name, seed)
    return figures
