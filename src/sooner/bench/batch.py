"""Tokens a second of a ragged batch against those of one row, by speculative decoding."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..decoding.parity import compare, reference_run
from ..generation import Generation, generate
from ..tasks.clip import Clip

if TYPE_CHECKING:
    from .caption import CaptionBench

PER_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids")
"""Inputs with one value for each prompt token, which have to be padded to one width."""


def batch_figures(bench: CaptionBench, rows: int) -> dict[str, Any]:
    """Decode `rows` clips together and one by one; clips repeat when there are fewer.

    Returns:
        `rows`, median tokens a second of either, `speedup`, and `parity` of every row of the batch
        with HF's decoding of that row alone. HF's assisted generation takes one row only.
    """
    clips = [bench.clip("speculative", index) for index in range(len(bench.files))]
    order = [index % len(clips) for index in range(rows)]
    limit = min(clip.max_new_tokens for clip in clips)
    whole = _together([clips[index] for index in order])
    singles, batched = [], []
    many = _decode(bench, whole, limit)  # warm-up, and the tokens to check
    for _ in range(bench.settings.repeats):
        singles += [_decode(bench, clip, limit).stats.tokens_per_second for clip in clips]
        batched.append(_decode(bench, whole, limit).stats.tokens_per_second)
    references = [reference_run(bench.model, clip.inputs, max_new_tokens=limit) for clip in clips]
    parity = [
        compare(references[index][0][0], tokens, references[index][1][0])
        for index, tokens in zip(order, many.tokens, strict=True)
    ]
    return {
        "rows": rows,
        "tokens_per_second_1": median(singles),
        "tokens_per_second": median(batched),
        "speedup": median(batched) / median(singles),
        "mean_acceptance_length": many.stats.mean_acceptance_length,
        "parity": [one.verdict for one in parity],
    }


def _decode(bench: CaptionBench, clip: Clip, limit: int) -> Generation:
    method = bench.speculative(clip.draft_inputs)
    return generate(bench.model, clip.inputs, method, max_new_tokens=limit, do_sample=False)


def _together(clips: list[Clip]) -> Clip:
    """One clip whose inputs hold all rows."""
    drafts = [clip.draft_inputs for clip in clips if clip.draft_inputs is not None]
    return Clip(
        frames=clips[0].frames,
        prompt=clips[0].prompt,
        inputs=stack([clip.inputs for clip in clips]),
        draft_inputs=stack(drafts) if drafts else None,
        max_new_tokens=min(clip.max_new_tokens for clip in clips),
    )


def stack(inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """One batch of several single-row inputs, shorter prompts padded on the left with zeros."""
    width = max(one["input_ids"].shape[1] for one in inputs)
    padded = [_widen(one, width) for one in inputs]
    return {
        name: torch.cat([one[name] for one in padded])
        for name, value in padded[0].items()
        if isinstance(value, Tensor)
    }


def _widen(inputs: Mapping[str, Any], width: int) -> dict[str, Any]:
    ids = inputs["input_ids"]
    full = {"attention_mask": torch.ones_like(ids), **inputs}
    missing = width - ids.shape[1]
    return {
        name: pad(value, (missing, 0)) if name in PER_TOKEN else value
        for name, value in full.items()
    }
