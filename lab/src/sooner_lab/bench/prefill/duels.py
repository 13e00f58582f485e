"""Quality of a pattern search: planted heads that it identifies, and errors at equal FLOPs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sooner.models import Adapter
from sooner.sparse.attention import States
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import HeadPattern
from sooner.sparse.search.capture import capture
from sooner.tasks.loading import ModelPair

from .compare import against_vertical_slash
from .layer import Progress
from .planted import KINDS, mixed_layout
from .planted import planted as plant
from .regions import interleaved
from .searched import QUERIES, search_states
from .settings import PrefillSettings

TOKENS = 1400
NOISES = (1.0, 2.0, 3.0)
AT_ONCE = 4
"""Heads that are searched together."""
DUEL_TOKENS, DUEL_HEADS, DUEL_NOISE = 4096, 4, 1.0
"""Of planted states: so many tokens that a window of 64 keys, which a far line costs, is little."""
DUEL_FRAMES = 48
"""Of each of the three videos in the prompt whose real attention is searched."""
LAYERS = 4
"""Layers of the model whose real attention is searched, evenly spaced."""


def planted(settings: PrefillSettings, progress: Progress) -> dict[str, Any]:
    """Share of planted heads whose kind the search finds again, by kind and noise."""
    rates: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        rates[kind] = {}
        for noise in NOISES:
            right = 0
            for first in range(0, settings.planted, AT_ONCE):
                progress(f"planted {kind}, noise {noise:g}: {first} of {settings.planted}")
                count = min(AT_ONCE, settings.planted - first)
                seed = settings.seed + first
                layout = mixed_layout(TOKENS, seed=seed)
                states = plant(kind, layout, count, noise, seed)
                found = search_states(states, layout)
                right += sum(pattern.name == kind for pattern in found)
            rates[kind][str(noise)] = right / settings.planted
    told = {"noise": list(NOISES), "heads": settings.planted, "tokens": TOKENS}
    return {"planted": {**told, "rates": rates}}


def duels(
    settings: PrefillSettings, pair: ModelPair, adapter: Adapter, progress: Progress
) -> dict[str, Any]:
    """Searched patterns against a vertical-slash of the same FLOPs, on mixed-modality states."""
    rows = []
    for kind in KINDS:
        progress(f"equal FLOPs: planted {kind}")
        layout = mixed_layout(DUEL_TOKENS, seed=settings.seed)
        states = plant(kind, layout, DUEL_HEADS, DUEL_NOISE, settings.seed, stride=24)
        rows.append(_duel(f"planted {kind}", states, layout))
    with torch.inference_mode():
        prompt = adapter.embed_prompt(interleaved(pair.target, settings.seed, DUEL_FRAMES))
    layout = PromptLayout.of(prompt, 0)
    picked = set(torch.linspace(0, adapter.layers - 1, LAYERS).long().tolist())

    def fight(number: int, states: States) -> None:
        if number in picked:
            progress(f"equal FLOPs: layer {number}")
            rows.append(
                _duel(f"{pair.target.model.config.model_type}, layer {number}", states, layout)
            )

    capture(adapter, prompt, fight)
    return {"duels": rows}


def _duel(name: str, states: States, layout: PromptLayout) -> dict[str, Any]:
    patterns: Sequence[HeadPattern] = search_states(states, layout, budget=0.5)
    told = against_vertical_slash(states, layout, patterns, QUERIES)
    return {
        "states": name,
        "ours": told.ours,
        "our_share": told.our_share,
        "theirs": told.theirs,
        "their_share": told.their_share,
        "rival": str(told.rival),
        "rival_far": told.rival_far,
        "tokens": len(layout.where()),
        "queries": told.queries,
    }
