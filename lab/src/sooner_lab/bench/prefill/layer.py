"""One attention layer by prompt length: latency, work, recall (MMInference, figure 16)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch

from sooner.sparse.attention import Backend, States, sparse_attention
from sooner.sparse.attention.run import backend_for, jobs
from sooner.sparse.cost import dense
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import HeadPattern
from sooner.sparse.plane import whole
from sooner.sparse.search import SearchSettings
from sooner.sparse.search.heads import decide, shortlist
from sooner.sparse.search.score import Survey, survey, trial
from sooner.sparse.search.space import Space

from ..run import Progress, time_in_turns
from .arms import pattern
from .settings import PrefillSettings
from .states import grid_states, video_layout

PROBES = 256
"""Queries of each modality on which errors and recall are measured."""
QUERIES = 64
"""Queries of each modality on which candidates of the search are scored."""


def layer(
    settings: PrefillSettings, device: torch.device, dtype: torch.dtype, progress: Progress
) -> list[dict[str, Any]]:
    """A row for each arm and length: `seconds`, `index_seconds`, `speedup`, `flops_share`,
    `of_allowed` (the speed-up over the one that the share of FLOPs allows), `recall`, `error`."""
    rows = []
    backend = backend_for(device)
    searched: list[HeadPattern] | None = None
    for tokens in settings.lengths:
        layout, states = _states(settings, tokens, settings.seed, device, dtype)
        chosen = {
            name: [pattern(name, tokens, settings.budget)] * settings.heads
            for name in settings.arms
            if name != "ours"
        }
        if "ours" in settings.arms:
            if searched is None:
                progress("layer: searching on other states of the shortest length")
                searched = _searched(settings, device, dtype)
            chosen["ours"] = searched
        rows += _length(settings, tokens, layout, states, chosen, backend, progress)
    return rows


def _states(
    settings: PrefillSettings, tokens: int, seed: int, device: torch.device, dtype: torch.dtype
) -> tuple[PromptLayout, States]:
    layout = video_layout(tokens, settings.frame, device)
    shape = (settings.heads, settings.kv_heads, settings.head_dim)
    return layout, grid_states(layout, settings.frame, *shape, seed, dtype, device)


def _searched(
    settings: PrefillSettings, device: torch.device, dtype: torch.dtype
) -> list[HeadPattern]:
    """Search each head's pattern on states that none is measured on; dense heads keep their best
    candidate."""
    layout, states = _states(settings, settings.lengths[0], settings.seed + 1, device, dtype)
    return decide_without(survey_layer(states, layout), states, layout, settings.budget)


def survey_layer(states: States, layout: PromptLayout) -> Survey:
    """Try all candidates of a prompt's length."""
    return survey(states, layout, Space(len(layout.where())).patterns, QUERIES)


def decide_without(
    surveyed: Survey, states: States, layout: PromptLayout, budget: float, *names: str
) -> list[HeadPattern]:
    """Return each head's pattern by cost in pairs, `names` of patterns and boundaries left out."""
    search = SearchSettings(queries=QUERIES, max_error=1e9)
    candidates = Space(len(layout.where())).patterns
    places = [place for place, each in enumerate(candidates) if each.name not in names]
    regions = {region: sums[:, places] for region, sums in surveyed.regions.items()}
    prices = torch.ones(len(places), dtype=torch.double)
    some = [candidates[place] for place in places]
    types = shortlist(replace(surveyed, regions=regions), some, prices, budget, search)
    types = [kind for kind in types if kind[0].name not in names]
    return decide(types, [trial(states, layout, kind, QUERIES) for kind in types], search)[0]


def _length(
    settings: PrefillSettings, tokens: int, layout: PromptLayout, states: States,
    chosen: dict[str, list[HeadPattern]], backend: Backend, progress: Progress,
) -> list[dict[str, Any]]:  # fmt: skip
    works: dict[str, Callable[[], Any]] = {}
    for name, each in chosen.items():
        works[name] = partial(sparse_attention, states, layout, each, backend)
        if name == "dense":
            works[name] = partial(dense, states)
        else:  # the part of it that estimates and builds the index
            works[f"{name}, index"] = partial(lambda each: list(jobs(states, layout, each)), each)
    times = time_in_turns(
        works,
        settings.repeats,
        states.queries.device,
        lambda line: progress(f"layer, {tokens} tokens, {line}"),
    )
    rows, every = [], whole(layout).pairs * settings.heads
    for name, each in chosen.items():
        error, recall, _ = trial(states, layout, each, PROBES).figures.mean(1).tolist()
        pairs = sum(int(job.pairs.sum()) for job in jobs(states, layout, each))
        seconds, share = median(times[name]), pairs / every
        speedup = median(times["dense"]) / seconds
        rows.append(
            {
                "method": name,
                "pattern": "; ".join(dict.fromkeys(map(str, each))),
                "tokens": tokens,
                "seconds": seconds,
                "index_seconds": median(times.get(f"{name}, index", [0.0])),
                "speedup": speedup,
                "flops_share": share,
                "of_allowed": speedup * share,
                "recall": recall,
                "error": error,
            }
        )
    return rows
