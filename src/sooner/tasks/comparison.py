"""Plain decoding beside a method, in the same process: how much sooner, and is it the same?"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..decoding.parity import Parity, compare, reference_run
from ..generation import Generation
from ..methods import Autoregressive, Method
from .clip import Clip
from .loading import Pair
from .running import run
from .settings import CaptionSettings

WARM_UP = 4
"""New tokens of the runs before the clock counts."""


def warm_up(pair: Pair, clip: Clip, settings: CaptionSettings, method: Method) -> None:
    """Both arms once, briefly: first forwards pay for allocations and kernel choices."""
    few = replace(clip, max_new_tokens=min(WARM_UP, clip.max_new_tokens))
    for arm in (method, Autoregressive()):
        run(pair, few, settings, arm)


def compare_plain(
    pair: Pair, clip: Clip, settings: CaptionSettings, made: Generation
) -> dict[str, Any]:
    """Decode plainly, streaming into nothing as the method's run did, and set both side by side.

    Returns:
        `decode_speedup`, `e2e_speedup` (from opening the file), `plain` (its speed) and `parity`,
        which is `None` under sampling. Speed-ups are `None` when parity says *bug*.
    """
    plain, _ = run(pair, clip, settings, Autoregressive())
    parity = check(pair, clip, plain.tokens[0], made.tokens[0]) if settings.is_greedy else None
    is_red = parity is not None and not parity.ok
    shared = clip.seconds["video"] + clip.seconds["processor"]
    own = shared + clip.seconds.get("draft_processor", 0.0) + made.stats.total_seconds
    speeds = plain.stats.tokens_per_second, made.stats.tokens_per_second
    return {
        "decode_speedup": speeds[1] / speeds[0] if all(speeds) and not is_red else None,
        "e2e_speedup": None if is_red else (shared + plain.stats.total_seconds) / own,
        "plain": {
            "tokens": plain.stats.tokens,
            "tokens_per_second": speeds[0],
            "seconds": dict(plain.stats.seconds),
        },
        "parity": None if parity is None else plain_data(parity),
    }


def check(pair: Pair, clip: Clip, reference: list[int], candidate: list[int]) -> Parity:
    """Parity of two greedy runs; only a difference costs a run that keeps scores."""
    first = compare(reference, candidate)
    if first.verdict == "identical":
        return first
    tokens, scores = reference_run(
        pair.target.model, clip.inputs, max_new_tokens=clip.max_new_tokens
    )
    return compare(tokens[0], candidate, scores[0])


def plain_data(parity: Parity) -> dict[str, Any]:
    """A parity for JSON, which knows no NaN."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in parity.as_dict().items()
    }
