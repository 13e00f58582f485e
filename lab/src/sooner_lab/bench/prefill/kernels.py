"""How long the Triton kernels take on a GPU, next to torch's own attention, by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from sooner.errors import SoonerError
from sooner.sparse.attention import States, sparse_attention
from sooner.sparse.attention.run import Backend, backend_for
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import share
from sooner.sparse.patterns import Dense, Grid, HeadPattern, VerticalSlash
from sooner.sparse.patterns.base import Pattern, build
from sooner.sparse.plane import whole
from sooner.sparse.probe import probe

LENGTHS = (32_768, 131_072, 524_288, 1_048_576)


def time_kernels(
    lengths: Sequence[int] = LENGTHS,
    heads: int = 8,
    kv_heads: int = 2,
    head_dim: int = 128,
    stride: int = 256,
    dtype: torch.dtype = torch.bfloat16,
    repeats: int = 3,
    backend: Backend | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Time one causal attention layer over random states, arms interleaved, medians.

    Arms: `sdpa` (torch's FlashAttention), `dense` (our kernel), `vertical-slash` with MInference's
    1000 and 1024 lines, and `grid`. The last two estimate and build their index inside the time.

    Args:
        lengths: tokens.
        stride: of the grid, in tokens; a frame of Qwen2.5-VL or LLaVA-Video has 100 to 400.
        repeats: timed runs of each arm, after one that is not timed.
        backend: Triton's unless given, such as one with other tile sizes.

    Returns:
        one dict for each length: `tokens`, `heads`, `kv_heads`, `head_dim`, `dtype`, and for each
        arm `seconds`, `flops_share`, `speedup` over `sdpa`; `share_reached` is the speed-up over
        that which the FLOPs share allows.

    Raises:
        SoonerError: there is no GPU.
    """
    if not torch.cuda.is_available():
        raise SoonerError("time_kernels measures GPU kernels, and there is no CUDA device here")
    device = torch.device("cuda")
    runner = backend or backend_for(device, "triton")
    rows = []
    for tokens in lengths:
        row = random_states(tokens, heads, kv_heads, head_dim, dtype, device, seed)
        found = _arms(row, PromptLayout.text(tokens, device), stride, runner, repeats)
        about = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
        rows.append({"tokens": tokens, **about, "dtype": str(dtype).split(".")[-1], "arms": found})
        del row
        torch.cuda.empty_cache()
    return rows


def random_states(
    tokens: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
    seed: int,
) -> States:
    """Normal states of one row, the same for one seed."""
    generator = torch.Generator(device).manual_seed(seed)

    def draw(count: int) -> Tensor:
        shape = (count, tokens, head_dim)
        return torch.randn(shape, generator=generator, device=device, dtype=dtype)

    return States(draw(heads), draw(kv_heads), draw(kv_heads), head_dim**-0.5)


def _arms(
    row: States, layout: PromptLayout, stride: int, backend: Backend, repeats: int
) -> dict[str, dict[str, float]]:
    patterns = patterns_of(stride)
    arms: dict[str, Callable[[], Any]] = {"sdpa": lambda: flash(row)}
    for name, pattern in patterns.items():
        arms[name] = pattern_run(row, layout, pattern, backend)
    seconds = _interleaved(arms, repeats)
    found: dict[str, dict[str, float]] = {"sdpa": {"seconds": seconds["sdpa"], "flops_share": 1.0}}
    for name, pattern in patterns.items():
        flops = flops_share(row, layout, pattern)
        found[name] = {"seconds": seconds[name], "flops_share": flops}
    for values in found.values():
        values["speedup"] = seconds["sdpa"] / values["seconds"]
        values["share_reached"] = values["speedup"] * values["flops_share"]
    return found


def patterns_of(stride: int) -> dict[str, Pattern]:
    """What is timed beside torch's attention, by name."""
    return {"dense": Dense(), "vertical-slash": VerticalSlash(), "grid": Grid(stride)}


def pattern_run(
    row: States, layout: PromptLayout, pattern: HeadPattern, backend: Backend
) -> Callable[[], object]:
    """A call that runs a pattern on every head; it estimates and builds its index."""
    picked = [pattern] * row.queries.shape[0]
    return lambda: sparse_attention(row, layout, picked, backend)


def flash(row: States) -> Tensor:
    """Torch's FlashAttention, causal, `[1, heads, tokens, head_dim]`."""
    q, k, v = row.queries[None], row.keys[None], row.values[None]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=row.scale, enable_gqa=True
        )


def _interleaved(arms: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each arm, all arms once a round; the first round compiles."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(repeats + 1):
        for name, run in arms.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            run()
            stop.record()
            torch.cuda.synchronize()
            if turn:
                times[name].append(start.elapsed_time(stop) / 1000)
    return {name: median(values) for name, values in times.items()}


def flops_share(row: States, layout: PromptLayout, pattern: Pattern) -> float:
    """Share of causal pairs that the first head computes."""
    if pattern.kind == "dense":
        return 1.0
    plane, first = whole(layout), torch.zeros(1, dtype=torch.long, device=row.queries.device)
    seen = probe(row.queries, row.keys, plane, row.scale, first)
    return float(share(build([pattern], plane, seen), plane)[0])
