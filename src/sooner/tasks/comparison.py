"""Plain decoding beside a method, in one process: the speed-up, and whether the ids agree; of HF's
own `generate`, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..engine.stats.run import APPROXIMATE
from ..errors import SoonerError
from ..generation import Generation
from ..methods import Autoregressive, Method
from ..parity import Parity, compare, reference_run
from ..provenance import versions
from .clip import Clip, prepare
from .loading import ModelPair
from .prefill import Prefill
from .registry import build_method
from .settings import CaptionSettings
from .streaming import run

WARM_UP = 4
"""New tokens of the untimed warm-up runs."""


def warm_up(
    pair: ModelPair,
    clip: Clip,
    settings: CaptionSettings,
    method: Method,
    prefill: Prefill | None = None,
) -> None:
    """Runs both arms once, briefly: first forwards pay for allocations and kernel choices."""
    few = replace(clip, max_new_tokens=min(WARM_UP, clip.max_new_tokens))
    for arm, context in ((method, prefill), (Autoregressive(), None)):
        run(pair, few, settings, arm, prefill=context)


def compare_plain(
    pair: ModelPair, clip: Clip, settings: CaptionSettings, made: Generation
) -> dict[str, Any]:
    """Decode plainly, streaming into nothing as the method's run did, and set both side by side.

    Returns:
        `decode_speedup`, `e2e_speedup` (from opening the file), `plain` (its speed), `parity`,
        which is `None` under sampling and for *approximate* results, and for these `agreement`.
        Speed-ups are `None` when parity says *bug*.
    """
    plain, _ = run(pair, clip, settings, Autoregressive())
    is_exact = made.stats.mode != APPROXIMATE
    parity = None
    if settings.is_greedy and is_exact:
        parity = check(pair, clip, plain.tokens[0], made.tokens[0])
    is_red = parity is not None and not parity.ok
    shared = clip.seconds["video"] + clip.seconds["processor"]
    total = shared + clip.seconds.get("draft_processor", 0.0) + made.stats.total_seconds
    speeds = plain.stats.tokens_per_second, made.stats.tokens_per_second
    return {
        "decode_speedup": speeds[1] / speeds[0] if all(speeds) and not is_red else None,
        "e2e_speedup": None if is_red else (shared + plain.stats.total_seconds) / total,
        "plain": {
            "tokens": plain.stats.tokens,
            "tokens_per_second": speeds[0],
            "seconds": dict(plain.stats.seconds),
        },
        "parity": None if parity is None else parity.as_dict(),
        "agreement": None if is_exact else agreement(plain.tokens[0], made.tokens[0]),
    }


def agreement(dense: list[int], sparse: list[int]) -> dict[str, Any]:
    """Returns agreement of an approximate text with the dense one's; informative, not a pass or
    fail.

    Returns:
        `next_token`: whether the first tokens, which the prefill alone decides, agree;
        `equal_tokens`: share of the longer text's places that hold the same token;
        `divergence`: the first place that does not, `None` where there is none.
    """
    same = [a == b for a, b in zip_longest(dense, sparse)]
    return {
        "next_token": dense[:1] == sparse[:1],
        "equal_tokens": sum(same) / len(same) if same else 1.0,
        "divergence": same.index(False) if False in same else None,
    }


def check(pair: ModelPair, clip: Clip, reference: list[int], candidate: list[int]) -> Parity:
    """Returns parity of two greedy runs; only where they differ, a further run keeps scores."""
    first = compare(reference, candidate)
    if first.verdict == "identical":
        return first
    tokens, scores = reference_run(
        pair.target.model, clip.inputs, max_new_tokens=clip.max_new_tokens
    )
    return compare(tokens[0], candidate, scores[0])


def verify(
    path: Path | str,
    pair: ModelPair,
    settings: CaptionSettings,
    on_stage: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """Decode one video by a method and by HF's own `generate`, and compare token ids.

    Args:
        path: the video.
        pair: the models.
        settings: the method; greedy, since sampling has no token-wise parity.
        on_stage: told the stage that begins.

    Returns:
        One record, ready for JSON: both token lists, the first divergence, the gaps there, and
        the verdict: `identical`, `tie` (rounding explains it) or `bug`.

    Raises:
        SoonerError: sampling was asked for, or the file can't be used.
    """
    if not settings.is_greedy:
        raise SoonerError(
            f"temperature is {settings.temperature:g}; parity compares token ids, which needs 0"
        )
    clip = prepare(path, pair, settings, on_stage=on_stage)
    method = build_method(settings, pair, clip.draft_inputs)
    on_stage("prefill")
    made, text = run(pair, clip, settings, method)
    on_stage("compare")
    reference, scores = reference_run(
        pair.target.model, clip.inputs, max_new_tokens=clip.max_new_tokens
    )
    parity = compare(reference[0], made.tokens[0], scores[0])
    return {
        "file": str(path),
        "method": made.stats.method,
        "mode": made.stats.mode,
        **parity.as_dict(),
        "tokens": made.stats.tokens,
        "acceptance": made.stats.mean_acceptance_length,
        "text": text,
        "reference_ids": reference[0],
        "candidate_ids": made.tokens[0],
        "model": pair.target.name,
        "draft": pair.draft.name if pair.draft is not None else None,
        "notes": clip.notes,
        "versions": versions(),
    }
