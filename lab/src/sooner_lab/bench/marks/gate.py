"""Whether the world of marks may judge: shares of M with intervals, against the gate's bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..intervals import quotient
from ..parallel.verdicts import rate, run_length, runs
from .settings import GATE, HALF_WIDTH, NONE, RUN_LENGTHS, WHOLE, Bound

Texts = Sequence[Sequence[bool]]
"""Of each clip, of each token of the target's text: would the draft have said it?"""


def share(texts: Texts, whole: Texts, seed: int) -> dict[str, Any]:
    """An arm's M over the unpruned draft's, in %.

    Args:
        texts, whole: of the same clips in the same order.
        seed: of the bootstrap over clips.

    Returns:
        `run_length` (M), `agreement`, `rejections`, `clips`; `share` and its 95 % `interval`.

    Raises:
        ValueError: other clips.
    """
    if [len(one) for one in texts] != [len(one) for one in whole]:
        raise ValueError("an arm's texts have to be those of the unpruned draft, clip by clip")
    over = quotient(_lengths(texts), _lengths(whole), seed)
    return {
        "run_length": run_length(texts),
        "agreement": rate(texts),
        "rejections": sum(not right for text in texts for right in text),
        "clips": len(texts),
        "share": None if over["value"] is None else 100 * over["value"],
        "interval": None if over["interval"] is None else [100 * one for one in over["interval"]],
    }


def gate(arms: Mapping[str, Texts], seed: int, bounds: Sequence[Bound] = GATE) -> dict[str, Any]:
    """Whether a draft may judge ways to prune.

    Args:
        arms: texts of each arm, `WHOLE` among them.
        seed: of the bootstrap.

    Returns:
        `may_judge`; `arms` with the figures of `share`, what was `wanted`, whether that was `met`
        and whether the interval is `sure` enough; the unpruned draft's figures as `whole` and
        whether its M lies in the paper's range, and those without any visual token as `none`, if
        they are among `arms`: both are told and not asked for.
    """
    whole = share(arms[WHOLE], arms[WHOLE], seed)
    found = []
    for bound in bounds:
        one = share(arms[bound.arm], arms[WHOLE], seed)
        met = one["share"] is not None and bound.holds(one["share"])
        found.append(
            {"arm": bound.arm, **one, "wanted": bound.wanted, "met": met, "sure": _sure(one)}
        )
    low, high = RUN_LENGTHS
    beside = {NONE: share(arms[NONE], arms[WHOLE], seed)} if NONE in arms else {}
    return {
        "may_judge": all(one["met"] and one["sure"] for one in found),
        "arms": found,
        "whole": whole,
        **beside,
        "in_range": whole["run_length"] is not None and low <= whole["run_length"] <= high,
    }


def calibrated(blind: Mapping[float, float], wanted: float) -> float:
    """The contrast whose blind share comes nearest to what is wanted, the clearer one of two."""
    return min(sorted(blind, reverse=True), key=lambda clear: abs(blind[clear] - wanted))


def _sure(one: Mapping[str, Any]) -> bool:
    if one["interval"] is None:
        return False
    low, high = one["interval"]
    return bool((high - low) / 2 <= HALF_WIDTH)


def _lengths(texts: Texts) -> tuple[list[float], list[float]]:
    """Of each clip the tokens of all its runs, and how many runs those are."""
    found = [runs(text) for text in texts]
    return [float(sum(one)) for one in found], [float(len(one)) for one in found]
