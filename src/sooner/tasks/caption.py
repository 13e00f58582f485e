"""Captions one video: a real file in, one record out; beside plain decoding in the same process, or
beside HF's own `generate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from ..engine.stats.run import APPROXIMATE, Stats
from ..errors import SoonerError
from ..generation import Generation
from ..methods import Autoregressive, Method
from ..parity import Parity, compare, end_ids, reference_run
from ..provenance import versions
from .clip import Clip, OnEstimate, Prompt, prepare
from .frames import Progress
from .identity import settings_hash, sha256
from .loading import ModelPair
from .prefill import Prefill, build_prefill
from .registry import build_method, plan_threads
from .settings import CaptionSettings
from .streaming import OnCount, OnText, run

WARM_UP = 4
"""New tokens of the untimed warm-up runs."""


@dataclass(frozen=True)
class CaptionCallbacks:
    """Functions called while a file is processed; each may be left out.

    Attributes:
        on_decode: `(frames decoded, frames to decode)`; of a long video those that are encoded.
        on_stage: the stage that begins: `process`, `warm-up`, `prefill`, `compare`.
        on_text: `(piece of the caption, whether it was drafted)`; the pieces add up to the text.
        on_count: `(new tokens so far, at most)`, after every round.
        on_estimate: what a long video will take, before its first frame is decoded.
        on_prefill: `(prompt tokens, in all)` of a long video, as they pass the layers.
    """

    on_decode: Progress = lambda done, total: None
    on_stage: Callable[[str], None] = lambda name: None
    on_text: OnText = lambda piece, drafted: None
    on_count: OnCount = lambda done, total: None
    on_estimate: OnEstimate = lambda estimate: None
    on_prefill: OnCount = lambda done, total: None


def caption(
    path: Path | str, pair: ModelPair, settings: CaptionSettings | None = None,
    callbacks: CaptionCallbacks | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Returns the record of one video, captioned.

    Args:
        path: the file.
        pair: the models, see `load_pair`.
        settings: how; the defaults are greedy, with the best method that the pair allows.
        callbacks: told what happens.

    Returns:
        The record is ready for JSON: text, counts, speeds, times by phase, hashes, versions.

    Raises:
        SoonerError: the file or the request can't be served; one line.
    """
    settings, callbacks = settings or CaptionSettings(), callbacks or CaptionCallbacks()
    draft = pair.draft.name if pair.draft is not None else None
    hashed = settings_hash(settings, pair.target.name, draft, pair.dtype)
    clip = prepare(
        path, pair, settings, callbacks.on_decode, callbacks.on_stage, callbacks.on_estimate,
    )  # fmt: skip
    prefill = build_prefill(settings, pair, clip.prefill_chunk)
    settings = replace(settings, prefill_chunk=clip.prefill_chunk)
    stats, record = answer(clip, pair, settings, callbacks, prefill)
    info = clip.frames.info
    # Threads of the process that drafted beside the target; 0 where none did.
    placement = settings.placement if stats.method == "parallel" else None
    return {
        "file": str(path), **record, "frames": len(clip.frames.indices),
        "frame_indices": clip.frames.indices,
        "video": {name: value for name, value in vars(info).items() if name != "path"},
        "prompt_tokens": int(clip.inputs["input_ids"].shape[1]),
        "notes": [*pair.foreign(path), *clip.notes],
        "prefill": None if prefill is None else prefill.as_dict(), "input_hash": sha256(path),
        "settings_hash": hashed, "estimate": clip.estimate,
        "model": pair.target.name, "draft": draft, "device": str(stats.device),
        "threads": torch.get_num_threads(),
        "draft_threads": plan_threads(pair, placement=placement).draft,
        "dtype": str(pair.target.model.dtype).removeprefix("torch."), "prompt": clip.prompt,
        "versions": versions(),
    }  # fmt: skip


def answer(
    prompt: Prompt, pair: ModelPair, settings: CaptionSettings, callbacks: CaptionCallbacks,
    prefill: Prefill | None = None,
) -> tuple[Stats, dict[str, Any]]:  # fmt: skip
    """Decode one prompt, and plainly too if the settings say so.

    Returns:
        The run's statistics, and what a record says of any prompt.
    """
    method = build_method(settings, pair, prompt.draft_inputs)
    if settings.compare:
        callbacks.on_stage("warm-up")
        warm_up(pair, prompt, settings, method, prefill)
    callbacks.on_stage("prefill")
    made, text = run(
        pair, prompt, settings, method, callbacks.on_text, callbacks.on_count, prefill,
        callbacks.on_prefill if isinstance(prompt, Clip) and prompt.estimate else None,
    )  # fmt: skip
    compared: dict[str, Any] = {"decode_speedup": None, "e2e_speedup": None, "parity": None}
    if settings.compare:
        callbacks.on_stage("compare")
        compared = compare_plain(pair, prompt, settings, made)
    stats, is_ended = made.stats, made.tokens[0][-1] in end_ids(pair.target.model)
    return stats, {
        "text": text, "tokens": stats.tokens,
        "finish": "stop" if is_ended or stats.tokens < prompt.max_new_tokens else "length",
        "tokens_per_second": stats.tokens_per_second, "method": stats.method, "mode": stats.mode,
        "acceptance": stats.mean_acceptance_length, "acceptance_rate": stats.acceptance_rate,
        "nfe": stats.nfe, **compared, "seconds": {**prompt.seconds, **stats.seconds},
        "decisions": stats.notes,
    }  # fmt: skip


def warm_up(
    pair: ModelPair, prompt: Prompt, settings: CaptionSettings, method: Method,
    prefill: Prefill | None = None,
) -> None:  # fmt: skip
    """Runs both arms once, briefly: first forwards pay for allocations and kernel choices."""
    few = replace(prompt, max_new_tokens=min(WARM_UP, prompt.max_new_tokens))
    for arm, context in ((method, prefill), (Autoregressive(), None)):
        run(pair, few, settings, arm, prefill=context)


def compare_plain(
    pair: ModelPair, prompt: Prompt, settings: CaptionSettings, made: Generation,
    method: Method | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Decode plainly, streaming into nothing as the method's run did, and set both side by side.

    Args:
        method: decodes plainly; `Autoregressive()` by default.

    Returns:
        `decode_speedup`, `e2e_speedup` (from opening the file), `plain` (its speed), `parity`,
        which is `None` under sampling and for *approximate* results, and for these `agreement`, the
        share of the longer text's places that hold the same token: `equal_tokens`.
        Speed-ups are `None` when parity says *bug*.
    """
    plain, _ = run(pair, prompt, settings, method or Autoregressive())
    is_exact = made.stats.mode != APPROXIMATE
    parity = None
    if settings.is_greedy and is_exact:
        parity = check(pair, prompt, plain.tokens[0], made.tokens[0])
    same = [ours == other for ours, other in zip_longest(plain.tokens[0], made.tokens[0])]
    is_red = parity is not None and not parity.ok
    shared = prompt.seconds.get("video", 0.0) + prompt.seconds["processor"]
    total = shared + prompt.seconds.get("draft_processor", 0.0) + made.stats.total_seconds
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
        "agreement": None if is_exact else {"equal_tokens": sum(same) / max(len(same), 1)},
    }


def check(pair: ModelPair, prompt: Prompt, reference: list[int], candidate: list[int]) -> Parity:
    """Returns parity of two greedy runs; only where they differ, a further run keeps scores."""
    first = compare(reference, candidate)
    if first.verdict == "identical":
        return first
    tokens, scores = reference_run(
        pair.target.model, prompt.inputs, max_new_tokens=prompt.max_new_tokens
    )
    return compare(tokens[0], candidate, scores[0])


def verify(
    path: Path | str, pair: ModelPair, settings: CaptionSettings,
    on_stage: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:  # fmt: skip
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
    clip = prepare(path, pair, settings, on_stage=on_stage)
    return {"file": str(path), **verify_prompt(clip, pair, settings, on_stage)}


def verify_prompt(
    prompt: Prompt, pair: ModelPair, settings: CaptionSettings,
    on_stage: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:  # fmt: skip
    """Decode one prompt by a method and by HF's own `generate`; see `verify`."""
    if not settings.is_greedy:
        raise SoonerError(
            f"temperature is {settings.temperature:g}; parity compares token ids, which needs 0"
        )
    method = build_method(settings, pair, prompt.draft_inputs)
    on_stage("prefill")
    made, text = run(pair, prompt, settings, method)
    on_stage("compare")
    reference, scores = reference_run(
        pair.target.model, prompt.inputs, max_new_tokens=prompt.max_new_tokens
    )
    parity = compare(reference[0], made.tokens[0], scores[0])
    return {
        "method": made.stats.method, "mode": made.stats.mode, **parity.as_dict(),
        "tokens": made.stats.tokens, "acceptance": made.stats.mean_acceptance_length, "text": text,
        "reference_ids": reference[0], "candidate_ids": made.tokens[0], "model": pair.target.name,
        "draft": pair.draft.name if pair.draft is not None else None, "notes": prompt.notes,
        "versions": versions(),
    }  # fmt: skip
