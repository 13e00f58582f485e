"""RMSNorm with the residual sum before it, and RoPE of queries and keys, as one kernel each.

Each rounds where transformers' own operations round. Only the order in which a norm's squares are
added up is the kernel's.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Whether Triton's interpreter runs the kernels, as `TRITON_INTERPRET` said when this was read."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDEST = 16_384
"""Most numbers that a program norms at once."""


def norms(x: Tensor, weight: Tensor) -> bool:
    """Returns whether the kernel takes `x [..., width]`: contiguous, and of the weight's dtype."""
    fits = x.is_contiguous() and weight.is_contiguous() and x.shape[-1] <= WIDEST
    return fits and x.dtype == weight.dtype and x.dtype in DTYPES


def add_rms_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, is_gemma: bool
) -> tuple[Tensor, Tensor]:
    """`residual + x` and its norm; without a residual the sum is `x`."""
    width = x.shape[-1]
    normed = torch.empty_like(x)
    total = x if residual is None else torch.empty_like(x)
    block = triton.next_power_of_2(width)
    with _on(x):
        norm_kernel[(x.numel() // width,)](
            x, total if residual is None else residual, weight, total, normed, eps,
            WIDTH=width, BLOCK=block, ADD=residual is not None, GEMMA=is_gemma,
            num_warps=min(max(block // 512, 1), 16),
        )  # fmt: skip
    return total, normed


def turns(queries: Tensor, keys: Tensor, cos: Tensor, sin: Tensor) -> bool:
    """Returns whether the kernel takes them: one dtype, and head dimensions that are contiguous."""
    tensors = (queries, keys, cos, sin)
    return (
        len({tensor.dtype for tensor in tensors}) == 1
        and queries.dtype in DTYPES
        and all(tensor.stride(-1) == 1 for tensor in tensors)
        and cos.stride() == sin.stride()
        and queries.shape[-1] == cos.shape[-1]
        and queries.shape[1] * queries.shape[-1] <= WIDEST
    )


def rope(queries: Tensor, keys: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Runs `reference.rope`; its result is `[rows, entries, heads, dim]` in memory."""
    return _rope(queries, keys, cos, sin, 2)


def turn_single(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Runs `reference.turn` by angles `[rows or 1, entries, dim]`."""
    return _rope(states, states[:, :0], cos, sin, 1)[0]


def _rope(
    queries: Tensor, keys: Tensor, cos: Tensor, sin: Tensor, both: int
) -> tuple[Tensor, Tensor]:
    rows, heads, entries, dim = queries.shape
    kv_heads = keys.shape[1]
    turned = [
        states.new_empty(rows, entries, states.shape[1], dim).transpose(1, 2)
        for states in (queries, keys)
    ]
    # A compiler that makes one operation of a product and a sum would round once, not twice.
    options: dict[str, Any] = {} if INTERPRETED else {"enable_fp_fusion": False}
    with _on(queries):
        rope_kernel[(rows * entries, both)](
            queries, keys, cos, sin, *turned, entries,
            *queries.stride()[:3], *keys.stride()[:3],
            cos.stride(0) if len(cos) > 1 else 0, cos.stride(1),
            HEADS=heads, KV_HEADS=kv_heads, HALF=dim // 2,
            PADDED_HEADS=triton.next_power_of_2(heads),
            PADDED_KV_HEADS=triton.next_power_of_2(max(kv_heads, 1)),
            PADDED=triton.next_power_of_2(dim // 2), num_warps=4, **options,
        )  # fmt: skip
    return turned[0], turned[1]


def _on(states: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current GPU, which need not be that of the states."""
    is_cuda = states.device.type == "cuda"
    return torch.cuda.device(states.device) if is_cuda else nullcontext()


# ruff: noqa: N803, SIM108
# mypy: disable-error-code="no-untyped-def"


@triton.jit
def norm_kernel(
    x, residual, weight, total, normed, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr, GEMMA: tl.constexpr,
):  # fmt: skip
    """Normalises one row of `[rows, WIDTH]`."""
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    row = tl.program_id(0).to(tl.int64) * WIDTH + at
    dtype: tl.constexpr = normed.dtype.element_ty
    states = tl.load(x + row, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        states += tl.load(residual + row, mask=inside, other=0.0).to(tl.float32)
        rounded = states.to(dtype)
        tl.store(total + row, rounded, mask=inside)
        states = rounded.to(tl.float32)
    mean = tl.sum(states * states, 0) / WIDTH
    states = states * tl.rsqrt(mean + eps)
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    if GEMMA:
        states = states * (1.0 + scale)
    else:
        states = states.to(dtype).to(tl.float32) * scale
    tl.store(normed + row, states.to(dtype), mask=inside)


@triton.jit
def turn(
    x, at, head, to, cos, sin, cos_2, sin_2, inside,
    HEADS: tl.constexpr, PADDED_HEADS: tl.constexpr, HALF: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Turn the heads of one token: those at `x + at`, `head` apart, to `to`, one behind another."""
    heads = tl.arange(0, PADDED_HEADS)[:, None]
    half = tl.arange(0, PADDED)[None, :]
    live = (heads < HEADS) & inside[None, :]
    dtype: tl.constexpr = x.dtype.element_ty
    place = x + at + heads.to(tl.int64) * head + half
    first = tl.load(place, mask=live, other=0.0).to(tl.float32)
    second = tl.load(place + HALF, mask=live, other=0.0).to(tl.float32)
    rotated = (first * cos[None, :]).to(dtype).to(tl.float32)
    rotated_2 = (second * cos_2[None, :]).to(dtype).to(tl.float32)
    crossed = (-second * sin[None, :]).to(dtype).to(tl.float32)
    crossed_2 = (first * sin_2[None, :]).to(dtype).to(tl.float32)
    target = to + heads * (2 * HALF) + half
    tl.store(target, (rotated + crossed).to(dtype), mask=live)
    tl.store(target + HALF, (rotated_2 + crossed_2).to(dtype), mask=live)


@triton.jit(do_not_specialize=["entries"])
def rope_kernel(
    queries, keys, cos, sin, to_queries, to_keys, entries,
    q_row, q_head, q_entry, k_row, k_head, k_entry, c_row, c_entry,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr,
    PADDED_HEADS: tl.constexpr, PADDED_KV_HEADS: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Rotates the queries of one token, or its keys."""
    token = tl.program_id(0).to(tl.int64)
    row, entry = token // entries, token % entries
    half = tl.arange(0, PADDED)
    inside = half < HALF
    angle = row * c_row + entry * c_entry + half
    cos_1 = tl.load(cos + angle, mask=inside, other=0.0).to(tl.float32)
    cos_2 = tl.load(cos + angle + HALF, mask=inside, other=0.0).to(tl.float32)
    sin_1 = tl.load(sin + angle, mask=inside, other=0.0).to(tl.float32)
    sin_2 = tl.load(sin + angle + HALF, mask=inside, other=0.0).to(tl.float32)
    if tl.program_id(1) == 0:
        turn(
            queries, row * q_row + entry * q_entry, q_head, to_queries + token * (HEADS * 2 * HALF),
            cos_1, sin_1, cos_2, sin_2, inside, HEADS, PADDED_HEADS, HALF, PADDED,
        )  # fmt: skip
    else:
        turn(
            keys, row * k_row + entry * k_entry, k_head, to_keys + token * (KV_HEADS * 2 * HALF),
            cos_1, sin_1, cos_2, sin_2, inside, KV_HEADS, PADDED_KV_HEADS, HALF, PADDED,
        )  # fmt: skip
