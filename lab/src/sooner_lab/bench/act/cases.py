"""The rounds in which single actions were decoded (figure 5)."""

from __future__ import annotations

from typing import Any

from .arms import ActContender
from .observations import Recorded


def cases(contenders: list[ActContender], recorded: list[Recorded], chosen: int) -> list[dict]:
    """One action of each environment, as `strict` and the chosen tolerance say it.

    Returns:
        For each: `env`, `instruction`, and for each arm its `rounds`: the bins that a round added
        and how many of them were drafted.
    """
    kept = [
        one
        for one in contenders
        if one.method == "strict" or (one.method == "relaxed" and one.tolerance == chosen)
    ]
    first = {one.env: one for one in reversed(recorded)}
    return [
        {
            "env": one.env,
            "instruction": one.seen.instruction,
            "arms": {arm.name: _rounds(arm, one) for arm in kept},
        }
        for one in first.values()
    ]


def _rounds(arm: ActContender, one: Recorded) -> list[dict[str, Any]]:
    rounds: list[dict[str, Any]] = []
    tokens = arm.policy.tokens

    def note(row: int, new: list[int], drafted: int) -> None:
        bins = [tokens.vocab_size - 1 - token for token in new]
        rounds.append({"bins": bins, "drafted": drafted})

    arm.act([one.seen], on_tokens=note)
    return rounds
