"""Compares a method's token ids with those of HF's own `generate`, for one video."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import SoonerError
from ..parity import compare, reference_run
from ..provenance import versions
from .clip import prepare
from .loading import ModelPair
from .registry import build_method
from .settings import CaptionSettings
from .streaming import run


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
