"""Caption one video: a real file in, one record out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import miniatures
from ..provenance import versions
from .clip import prepare
from .frames import Progress
from .identity import settings_hash, sha256
from .loading import ModelPair
from .prefill import build_prefill
from .registry import build_method, plan_threads
from .settings import CaptionSettings
from .streaming import OnCount, OnText, run


@dataclass(frozen=True)
class CaptionCallbacks:
    """Functions called while a file is processed; each may be left out.

    Attributes:
        on_decode: `(frames decoded, frames to decode)`.
        on_stage: the stage that begins: `process`, `warm-up`, `prefill`, `compare`.
        on_text: `(piece of the caption, whether it was drafted)`; the pieces add up to the text.
        on_count: `(new tokens so far, at most)`, after every round.
    """

    on_decode: Progress = lambda done, total: None
    on_stage: Callable[[str], None] = lambda name: None
    on_text: OnText = lambda piece, drafted: None
    on_count: OnCount = lambda done, total: None


def caption(
    path: Path | str,
    pair: ModelPair,
    settings: CaptionSettings | None = None,
    callbacks: CaptionCallbacks | None = None,
) -> dict[str, Any]:
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
    clip = prepare(path, pair, settings, callbacks.on_decode, callbacks.on_stage)
    method = build_method(settings, pair, clip.draft_inputs)
    prefill = build_prefill(settings, pair, clip.inputs)
    if settings.compare:
        from .comparison import warm_up  # for those who ask for it

        callbacks.on_stage("warm-up")
        warm_up(pair, clip, settings, method, prefill)
    callbacks.on_stage("prefill")
    made, text = run(pair, clip, settings, method, callbacks.on_text, callbacks.on_count, prefill)
    compared: dict[str, Any] = {"decode_speedup": None, "e2e_speedup": None, "parity": None}
    if settings.compare:
        from .comparison import compare_plain

        callbacks.on_stage("compare")
        compared = compare_plain(pair, clip, settings, made)
    stats, info = made.stats, clip.frames.info
    # Threads of the process that drafted beside the target; 0 where none did.
    placement = settings.placement if stats.method == "parallel" else None
    return {
        "file": str(path),
        "text": text,
        "tokens": stats.tokens,
        "finish": "length" if stats.tokens >= clip.max_new_tokens else "stop",
        "tokens_per_second": stats.tokens_per_second,
        "method": stats.method,
        "mode": stats.mode,
        "acceptance": stats.mean_acceptance_length,
        "acceptance_rate": stats.acceptance_rate,
        "nfe": stats.nfe,
        **compared,
        "frames": len(clip.frames.indices),
        "frame_indices": clip.frames.indices,
        "video": {name: value for name, value in vars(info).items() if name != "path"},
        "prompt_tokens": int(clip.inputs["input_ids"].shape[1]),
        "seconds": {**clip.seconds, **stats.seconds},
        "notes": [*foreign_notes(pair, path), *clip.notes],
        "prefill": None if prefill is None else prefill.as_dict(),
        "decisions": stats.notes,
        "input_hash": sha256(path),
        "settings_hash": settings_hash(settings, pair.target.name, draft, pair.dtype),
        "model": pair.target.name,
        "draft": draft,
        "device": str(stats.device),
        "threads": torch.get_num_threads(),
        "draft_threads": plan_threads(pair, placement=placement).draft,
        "dtype": str(pair.target.model.dtype).removeprefix("torch."),
        "prompt": clip.prompt,
        "versions": versions(),
    }


def foreign_notes(pair: ModelPair, path: Path | str) -> list[str]:
    """Returns notes for videos that a miniature was not trained on."""
    if pair.miniature is None:
        return []
    return miniatures.find(pair.miniature).foreign(Path(path))
