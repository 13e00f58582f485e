"""One attention layer by prompt length: latency, work, recall (MMInference, figure 16)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sooner.sparse.attention import Backend, Partial, States, sparse_attention
from sooner.sparse.attention.run import backend_for, jobs
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import Dense, HeadPattern

from ..run import Progress
from .arms import pattern
from .searched import search_states
from .settings import PrefillSettings
from .states import grid_states, video_layout

PROBES = 256
"""Queries, evenly spaced, on which errors and recall are measured."""


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
    """Each head's pattern, searched on states that none is measured on."""
    layout, states = _states(settings, settings.lengths[0], settings.seed + 1, device, dtype)
    return search_states(states, layout, settings.budget)


def _length(
    settings: PrefillSettings,
    tokens: int,
    layout: PromptLayout,
    states: States,
    chosen: dict[str, list[HeadPattern]],
    backend: Backend,
    progress: Progress,
) -> list[dict[str, Any]]:
    times: dict[str, list[float]] = {name: [] for name in chosen}
    indexing: dict[str, list[float]] = {name: [] for name in chosen}
    truth = exact(states, layout)
    rows = []
    for turn in range(settings.repeats + 1):  # the first is the warm-up
        for name, each in chosen.items():
            progress(f"layer, {tokens} tokens, {turn}/{settings.repeats}: {name}")
            seconds = attend_seconds(states, layout, each, backend)
            index = index_seconds(states, layout, each) if name != "dense" else 0.0
            if turn:
                times[name].append(seconds)
                indexing[name].append(index)
    for name, each in chosen.items():
        seconds, share = median(times[name]), pair_share(each, states, layout)
        speedup = median(times["dense"]) / seconds
        rows.append(
            {
                "method": name,
                "pattern": "; ".join(dict.fromkeys(map(str, each))),
                "tokens": tokens,
                "seconds": seconds,
                "index_seconds": median(indexing[name]),
                "speedup": speedup,
                "flops_share": share,
                "of_allowed": speedup * share,
                **fidelity(states, layout, each, backend, truth),
            }
        )
    return rows


def attend_seconds(
    states: States, layout: PromptLayout, each: Sequence[HeadPattern], backend: Backend
) -> float:
    """One run of the layer; dense is one call of torch's fused kernel."""

    def dense() -> Tensor:
        return scaled_dot_product_attention(
            states.queries[None],
            states.keys[None],
            states.values[None],
            is_causal=True,
            scale=states.scale,
            enable_gqa=states.group > 1,
        )

    def sparse() -> Partial:
        return sparse_attention(states, layout, each, backend)

    is_dense = all(isinstance(pattern, Dense) for pattern in each)
    return timed(dense if is_dense else sparse, states.queries.device)


def index_seconds(states: States, layout: PromptLayout, each: Sequence[HeadPattern]) -> float:
    """The part of it that estimates and builds the index."""
    return timed(lambda: list(jobs(states, layout, each)), states.queries.device)


def timed(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds of one call, the device synchronised before and after."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


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
