"""Tokens a second of a ragged batch, by plain, speculative and parallel decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sooner.decoding.parity import compare
from sooner.generation import Generation, generate
from sooner.tasks.clip import Clip

if TYPE_CHECKING:
    from .caption import CaptionBench

Figures = dict[str, Any]
PER_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids")
"""Inputs with one value for each prompt token, which have to be padded to one width."""


def batch_figures(bench: CaptionBench, rows: int, arms: Sequence[Figures]) -> Figures:
    """Decode `rows` clips together, arm by arm in turns; clips repeat when there are fewer.

    Args:
        bench: whose clips, models and settings are taken.
        rows: of the batch.
        arms: the figures of the arms over one row, plain decoding's first.

    Returns:
        `rows`, and in `arms` for each: `method`, `tokens_per_second` of all rows (median of the
        repetitions), `over_plain`, which is that over plain decoding's of the same batch;
        `tokens_per_second_1` of one row, `over_one_row`, and `one_row_over_plain`;
        `mean_acceptance_length`; `parity`, of every row with HF's decoding of that row alone. HF's
        assisted generation takes one row only.
    """
    clips = [bench.clip("plain", index) for index in range(len(bench.files))]
    order = [index % len(clips) for index in range(rows)]
    limit = min(clip.max_new_tokens for clip in clips)
    wholes = {arm["method"]: _whole(bench, arm["method"], order) for arm in arms}
    made = {name: _decode(bench, name, whole, limit) for name, whole in wholes.items()}  # warm-up
    speeds: dict[str, list[float]] = {name: [] for name in wholes}
    for _ in range(bench.settings.repeats):
        for name, whole in wholes.items():
            made[name] = _decode(bench, name, whole, limit)
            speeds[name].append(made[name].stats.tokens_per_second)
    parity = _verdicts(bench, order, {name: one.tokens for name, one in made.items()}, limit)
    plain, alone = median(speeds["plain"]), arms[0]["tokens_per_second"]
    found = []
    for arm in arms:
        name = arm["method"]
        speed, single = median(speeds[name]), arm.get("tokens_per_second")
        found.append(
            {
                "method": name,
                "tokens_per_second": speed,
                "over_plain": speed / plain,
                "tokens_per_second_1": single,
                "over_one_row": speed / single if single else None,
                "one_row_over_plain": single / alone if single else None,
                "mean_acceptance_length": made[name].stats.mean_acceptance_length,
                "parity": parity[name],
            }
        )
    return {"rows": rows, "arms": found}


def _whole(bench: CaptionBench, name: str, order: Sequence[int]) -> Clip:
    """All rows as one clip, with the inputs that an arm's draft takes."""
    clips = [bench.clip(name, index) for index in sorted(set(order))]
    return _together([clips[index] for index in order])


def _verdicts(
    bench: CaptionBench, order: Sequence[int], made: Mapping[str, list[list[int]]], limit: int
) -> dict[str, list[str]]:
    """Parity of each row of each arm with HF's decoding of that row alone, clip by clip."""
    told: dict[str, list[str]] = {name: [""] * len(order) for name in made}
    for clip in sorted(set(order)):
        wanted, scores = bench.reference(clip)
        for row in (place for place, index in enumerate(order) if index == clip):
            for name, tokens in made.items():
                found = compare(wanted[:limit], tokens[row], scores[:limit])
                told[name][row] = found.verdict
    return told


def _decode(bench: CaptionBench, name: str, clip: Clip, limit: int) -> Generation:
    method = bench.method(name, clip)
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
