"""The figures that the study is to reach, beside what a run reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .contenders import FORKED, OURS, PLAIN

Figures = dict[str, Any]
RIVALS = ((PLAIN, 3.4), ("speculative", 1.3), ("speculative-auto", 1.3), ("hf-assisted", 1.6))
"""Decoding speed of `parallel`, the one arm that is named in advance, over an arm's."""
OPENING = ((OURS, "standing draft"), (FORKED, "draft forked for the run"))
"""Arms whose time to the first token is told."""


def goals(result: Figures, prune: float) -> list[Figures]:
    """One entry a figure: `goal`, `wanted`, `reached`, `met`, of some the `interval`; what was not
    measured is left out."""
    arms = {arm["method"]: arm for arm in result["arms"]}
    found = _speeds(arms, arms[OURS]) if _speed(arms.get(OURS)) else []
    found += _lengths(result["sweep"], prune)
    swept = {one["method"]: one for one in result["sweep"]}  # where the sweep alone was asked for
    pruned = arms.get(OURS, swept.get(OURS, {}))
    if pruned.get("ranking_share"):
        share = 100 * pruned["ranking_share"]
        found.append(_below("ranking, % of the target's prefill", 1.0, share))
    for name, how in OPENING:
        ratio = (pruned if name == OURS else arms.get(name, {})).get("first_token_ratio")
        if ratio is not None:
            what = f"addition to the time to the first token, {how}, %"
            found.append(_below(what, 5.0, 100 * (ratio - 1)))
    return found


def _speeds(arms: dict[str, Figures], ours: Figures) -> list[Figures]:
    found = [
        _above(f"{OURS} over {rival}, ×", wanted, _speed(ours) / _speed(arms[rival]))
        for rival, wanted in RIVALS
        if _speed(arms.get(rival))
    ]
    share = ours.get("share_of_simulation")
    if share is not None:
        found.append(_above(f"{OURS}, % of the simulator's", 85.0, 100 * share))
    return found


def _lengths(points: Sequence[Figures], prune: float) -> list[Figures]:
    """Accepted run lengths of pruned drafts over the unpruned draft's: those of the same texts,
    judged token by token, for a real run's follow its windows, too. Whether M differs from clip to
    clip by more than what is asked is told by the 95 % `interval`."""
    found = []
    for one in points:
        share = one.get("run_length_share", {})
        if one["alpha"] == prune and share.get("value"):
            reached = 100 * share["value"]
            what = f"M of {one['criterion']} at α {prune:g}, % of the unpruned draft's"
            is_ours = one["criterion"].startswith("uv-prune")
            goal = _above(what, 95.0, reached) if is_ours else _below(what, 95.0, reached)
            found.append({**goal, "interval": [100 * edge for edge in share["interval"]]})
    return found


def _speed(arm: Figures | None) -> float:
    return 0.0 if arm is None else float(arm.get("decode_speedup") or 0.0)


def _above(what: str, wanted: float, reached: float) -> Figures:
    return {
        "goal": what,
        "wanted": f"at least {wanted:g}",
        "reached": reached,
        "met": reached >= wanted,
    }


def _below(what: str, limit: float, reached: float) -> Figures:
    return {"goal": what, "wanted": f"below {limit:g}", "reached": reached, "met": reached < limit}
