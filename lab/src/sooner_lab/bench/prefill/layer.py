"""One attention layer by prompt length: latency, work, recall (MMInference, figure 16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sooner.sparse.attention import Backend, Partial, States, sparse_attention
from sooner.sparse.attention.run import backend_for, jobs
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import Dense, HeadPattern
from sooner.sparse.search import SearchSettings
from sooner.sparse.search.heads import decide, shortlist
from sooner.sparse.search.score import survey, trial
from sooner.sparse.search.space import Space

from ..run import Progress, time_in_turns
from .arms import pattern
from .settings import PrefillSettings
from .states import grid_states, video_layout

PROBES = 256
"""Queries, evenly spaced, on which errors and recall are measured."""
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
    search = SearchSettings(queries=QUERIES, max_error=1e9)
    space = Space(len(layout.where()))
    prices = torch.ones(len(space.patterns), dtype=torch.double)
    surveyed = survey(states, layout, space.patterns, QUERIES)
    types = shortlist(surveyed, space.patterns, prices, settings.budget, search)
    trials = [trial(states, layout, kind, QUERIES) for kind in types]
    return decide(types, trials, search)[0]


def _length(
    settings: PrefillSettings,
    tokens: int,
    layout: PromptLayout,
    states: States,
    chosen: dict[str, list[HeadPattern]],
    backend: Backend,
    progress: Progress,
) -> list[dict[str, Any]]:
    works: dict[str, Callable[[], Any]] = {}
    for name, each in chosen.items():
        works[name] = partial(attend, states, layout, each, backend)
        if name != "dense":  # the part of it that estimates and builds the index
            works[f"{name}, index"] = partial(lambda each: list(jobs(states, layout, each)), each)
    times = time_in_turns(
        works,
        settings.repeats,
        states.queries.device,
        lambda line: progress(f"layer, {tokens} tokens, {line}"),
    )
    truth = exact(states, layout)
    rows = []
    for name, each in chosen.items():
        seconds, share = median(times[name]), pair_share(each, states, layout)
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
                **fidelity(states, layout, each, backend, truth),
            }
        )
    return rows


def attend(
    states: States, layout: PromptLayout, each: Sequence[HeadPattern], backend: Backend
) -> Any:
    """Run the layer; dense is one call of torch's fused kernel."""
    if not all(isinstance(pattern, Dense) for pattern in each):
        return sparse_attention(states, layout, each, backend)
    return scaled_dot_product_attention(
        states.queries[None],
        states.keys[None],
        states.values[None],
        is_causal=True,
        scale=states.scale,
        enable_gqa=states.group > 1,
    )


def probes(layout: PromptLayout) -> Tensor:
    """Evenly spaced tokens, the last among them, `[probes]`."""
    slots = layout.where()
    step = max(len(slots) // PROBES, 1)
    return slots.flip(0)[::step].flip(0)


def exact(states: States, layout: PromptLayout) -> Partial:
    """Dense attention of the probing queries: `[heads, probes, head_dim]` and its log-sum-exp."""
    probed, slots = probes(layout), layout.where()
    later = slots[None] > probed[:, None]
    outputs, lses = [], []
    for head in range(len(states.queries)):
        keys = states.keys[head // states.group, slots].float()
        scores = states.queries[head, probed].float() @ keys.T * states.scale
        scores = scores.masked_fill(later, -torch.inf)
        values = states.values[head // states.group, slots].float()
        outputs.append(scores.softmax(1) @ values)
        lses.append(scores.logsumexp(1))
    return Partial(torch.stack(outputs), torch.stack(lses))


def fidelity(
    states: States,
    layout: PromptLayout,
    each: Sequence[HeadPattern],
    backend: Backend,
    truth: Partial,
) -> dict[str, float]:
    """Attention that is kept, and the error of what comes out, on the probing queries."""
    probed = probes(layout)
    made = sparse_attention(states, layout, each, backend)
    output, lse = made.output[:, probed], made.lse[:, probed]
    error = (output - truth.output).norm() / truth.output.norm()
    recall = (lse - truth.lse).exp().clamp(max=1.0).mean()
    return {"recall": float(recall), "error": float(error)}


def pair_share(patterns: Sequence[HeadPattern], states: States, layout: PromptLayout) -> float:
    """Return the share of causal attention's query-key pairs that the heads compute, exactly."""
    tokens = len(layout.where())
    total = sum(int(job.pairs.sum()) for job in jobs(states, layout, patterns))
    return total / (max(tokens * (tokens + 1) // 2, 1) * len(patterns))
