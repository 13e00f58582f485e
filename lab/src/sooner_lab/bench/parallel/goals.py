"""What `sooner bench parallel` is to reach; fixed before any result."""

from __future__ import annotations

from ..goals import goal
from ..run import Data
from .contenders import FORKED, OURS, PLAIN

RIVALS = ((PLAIN, 3.4), ("speculative", 1.3), ("speculative-auto", 1.3), ("hf-assisted", 1.6))
"""Decoding speed of `parallel`, the one arm that is named in advance, over an arm's."""
OPENING = ((OURS, "standing draft"), (FORKED, "draft forked for the run"))
"""Arms whose time to the first token is judged."""


def goals(result: Data) -> list[Data]:
    """Return a row for each goal that was measured."""
    arms = {arm["method"]: arm for arm in (*result["sweep"], *result["arms"])}
    ours = arms.get(OURS, {})
    rows = []
    if speed := ours.get("decode_speedup"):
        for rival, bound in RIVALS:
            if base := arms.get(rival, {}).get("decode_speedup"):
                rows.append(goal(f"{OURS} over {rival}, ×", bound, speed / base))
    if ours.get("share_of_simulation") is not None:
        reached = 100 * ours["share_of_simulation"]
        rows.append(goal(f"{OURS}, % of the simulator's", 85.0, reached))
    if ours.get("ranking_share"):
        name, reached = "ranking, % of the target's prefill", 100 * ours["ranking_share"]
        rows.append(goal(name, 1.0, reached, is_upper=True))
    for method, how in OPENING:
        ratio = arms.get(method, {}).get("first_token_ratio")
        if ratio is not None:
            name = f"addition to the time to the first token, {how}, %"
            rows.append(goal(name, 5.0, 100 * (ratio - 1), is_upper=True))
    return rows
