"""The sparse prefill's kernels against the reference, then against torch's FlashAttention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from sooner.sparse.attention import Reference, States, sparse_attention
from sooner.sparse.attention.partial import Partial
from sooner.sparse.attention.run import backend_for, jobs
from sooner.sparse.attention.work import layer_work
from sooner.sparse.cost import flops
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import Dense, Grid, HeadPattern, Pattern, VerticalSlash

from ..prefill.layer import decide_without, survey_layer
from ..prefill.states import grid_states, video_layout
from .bench import GpuBench
from .kernels import judged, relative_error

MILLION = 1 << 20
SEARCHED, BUDGET = 8192, 0.15
"""Tokens that are searched on, and the share of dense attention that a head may cost."""

MILLION_HEADS = 7
"""Query heads at a million tokens, of one key head: a layer's 28 would take four times as long."""


def prefill(bench: GpuBench, out: dict[str, Any]) -> None:
    """One causal attention layer by length, the index's estimate inside the time.

    Writes `checks`, the error of each pattern over the reference's largest output; `ok`; and, if
    none is red, `lengths`: of each arm seconds, `over_sdpa` (the speed-up), `flops_share` (with
    the estimate), `share_reached`, the speed-up over that which the FLOPs allow, and `index_share`,
    seconds of the estimate and its indices over all. The arm `searched` has what a search finds for
    each head on `SEARCHED` tokens of other states, those of a video with frames of `stride`.
    """
    settings = bench.settings
    _measure(bench, out, settings.prefill_lengths, settings.heads, settings.kv_heads)


def prefill_1m(bench: GpuBench, out: dict[str, Any]) -> None:
    """Times a prefill of a million tokens, with fewer heads and one timed run."""
    tokens = MILLION if bench.clock.is_cuda else bench.settings.prefill_lengths[-1]
    _measure(bench, out, (tokens,), MILLION_HEADS, 1, repeats=1)


def _measure(
    bench: GpuBench,
    out: dict[str, Any],
    lengths: tuple[int, ...],
    heads: int,
    kv_heads: int,
    repeats: int = 3,
) -> None:
    settings = bench.settings
    out |= {"backend": backend_for(bench.device).name, "heads": heads, "kv_heads": kv_heads}
    out |= {"checks": checks(bench), "lengths": []}
    out["ok"] = all(result["ok"] for result in out["checks"].values())
    if not out["ok"]:
        return
    heads_of = tables(bench, min(SEARCHED, *lengths), heads, kv_heads)
    for tokens in lengths:
        if bench.is_late(out, f"{tokens} tokens"):
            continue
        bench.progress(f"prefill: {tokens} tokens")
        row = _states(bench, tokens, heads, kv_heads)
        out["lengths"].append({"tokens": tokens, "arms": times(bench, row, heads_of, repeats)})
        del row
        bench.clock.free()
        bench.keep()
    out["stride"] = settings.stride


def _states(bench: GpuBench, tokens: int, heads: int, kv_heads: int) -> States:
    """Return normal states of one row, the same for one seed."""
    settings = bench.settings
    generator = torch.Generator(bench.device).manual_seed(settings.seed)

    def draw(count: int) -> Tensor:
        shape = (count, tokens, settings.head_dim)
        return torch.randn(shape, generator=generator, device=bench.device, dtype=bench.dtype)

    return States(draw(heads), draw(kv_heads), draw(kv_heads), settings.head_dim**-0.5)


def checks(bench: GpuBench) -> dict[str, dict[str, Any]]:
    """Errors at a short length over the same index, by pattern; twice torch's own is allowed."""
    settings = bench.settings
    tokens = settings.checked_length
    row = _states(bench, tokens, 2 * settings.kv_heads, settings.kv_heads)
    wide = States(row.queries.float(), row.keys.float(), row.values.float(), row.scale)
    layout = PromptLayout.text(tokens, bench.device)
    backend = backend_for(bench.device)
    results: dict[str, dict[str, Any]] = {}
    sdpa_error = None
    with torch.inference_mode():
        for name, pattern in patterns_of(settings.stride).items():
            truth, output = Partial.empty(wide), Partial.empty(row)
            for job in jobs(row, layout, [pattern] * row.queries.shape[0]):
                Reference().attend(wide, job.plane, job.index, job.heads, truth)
                backend.attend(row, job.plane, job.index, job.heads, output)
            if not results:  # the dense pattern is the first
                sdpa_error = relative_error(flash(row)[0], truth.output)
            error = relative_error(output.output, truth.output)
            results[name] = judged(error, sdpa_error)
    return results


def times(
    bench: GpuBench, row: States, heads_of: Mapping[str, Sequence[HeadPattern]], repeats: int
) -> dict[str, dict[str, Any]]:
    """Seconds of each arm at one length, each with its patterns of heads."""
    layout = video_layout(row.queries.shape[1], bench.settings.stride, bench.device)
    backend = backend_for(bench.device)
    arms: dict[str, Any] = {"sdpa-flash": lambda: flash(row)}
    for name, picked in heads_of.items():
        arms[name] = partial(sparse_attention, row, layout, picked, backend)
        arms[f"{name}, index"] = partial(layer_work, row, [layout], [picked], backend.fold)
    with torch.inference_mode():
        timed = bench.clock.interleaved(arms, repeats)
        indices = {name: timed.pop(f"{name}, index") for name in heads_of}
        for name, figures in timed.items():
            if "missing" in figures:
                continue
            part = flops(heads_of[name], row, layout) if name in heads_of else 1.0
            figures["flops_share"] = part
            if "seconds" in indices.get(name, {}):
                figures["index_share"] = indices[name]["seconds"] / figures["seconds"]
            if "seconds" in timed["sdpa-flash"]:
                faster = timed["sdpa-flash"]["seconds"] / figures["seconds"]
                figures |= {"over_sdpa": faster, "share_reached": faster * part}
    return timed


def tables(bench: GpuBench, tokens: int, heads: int, kv_heads: int) -> dict[str, list[HeadPattern]]:
    """The patterns of all heads, by arm.

    Args:
        tokens: of the states that are searched on.
    """
    settings = bench.settings
    layout = video_layout(tokens, settings.stride, bench.device)
    shape = (heads, kv_heads, settings.head_dim)
    states = grid_states(layout, settings.stride, *shape, settings.seed, bench.dtype, bench.device)
    searched = decide_without(survey_layer(states, layout), states, layout, BUDGET)
    every: dict[str, list[HeadPattern]] = {
        name: [each] * heads for name, each in patterns_of(settings.stride).items()
    }
    return every | {"searched": searched}


def patterns_of(stride: int) -> dict[str, Pattern]:
    """What is timed beside torch's attention, by name."""
    return {"dense": Dense(), "vertical-slash": VerticalSlash(), "grid": Grid(stride)}


def flash(row: States) -> Tensor:
    """Torch's FlashAttention, causal, `[1, heads, tokens, head_dim]`."""
    q, k, v = row.queries[None], row.keys[None], row.values[None]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=row.scale, enable_gqa=True
        )
