"""Torch's fused attention for CPUs, with the log-sum-exp that merging needs."""

from __future__ import annotations

import torch
from torch import Tensor

from ..partial import States

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def supports(states: States) -> bool:
    """Returns whether the kernel takes these states: CPU, a dtype of `DTYPES`, one head size for
    all.
    """
    parts = (states.queries, states.keys, states.values)
    return all(
        part.device.type == "cpu"
        and part.dtype == states.queries.dtype
        and part.shape[-1] == states.queries.shape[-1]
        and part.stride(-1) == 1
        for part in parts
    ) and (states.queries.dtype in DTYPES)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    causal: bool = False,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns attention and its log-sum-exp; strides of any kind but the last dimension's are free.

    Args:
        queries: `[batch, heads, queries, head_dim]`, at least one query.
        keys, values: `[batch, heads, keys, head_dim]`, at least one key.
        causal: query `i` sees the keys up to `i`, whatever their number.
        mask: added to the scores, in the dtype of the queries, `[batch, heads, queries, keys]` or
            what expands to it. Where a query sees nothing, the results mean nothing.

    Returns:
        output `[batch, heads, queries, head_dim]` and log-sum-exp `[batch, heads, queries]`.
    """
    if mask is not None:
        mask = mask.expand(*queries.shape[:3], keys.shape[2])
    output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        queries, keys, values, 0.0, causal, attn_mask=mask, scale=scale
    )
    return output, lse


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the mask that leaves only what is seen."""
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)
