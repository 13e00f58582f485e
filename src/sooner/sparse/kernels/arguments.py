"""What every kernel takes: tensors with their strides, in tuples that a kernel reads by name."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import SoonerError
from ..attention.partial import Partial, States
from .tiles import Tiles

KIND = (torch.float16, torch.bfloat16, torch.float32)


class Rows(NamedTuple):
    """A tensor `[heads, tokens, ...]`: its memory, and the strides of heads and tokens."""

    at: Tensor
    head: int
    token: int


class Attention(NamedTuple):
    """The states of a row and where the result goes; `scale` is that of scores in base 2.

    (A field must not be called `values`: Triton's tuples have an attribute of that name.)
    """

    q: Rows
    k: Rows
    v: Rows
    out: Rows
    mass: Rows
    heads: Tensor
    group: int
    scale: float


def attention(states: States, heads: Tensor, into: Partial, interpreted: bool) -> Attention:
    """The first argument of every kernel. Nothing is copied if head dimensions are contiguous.

    Args:
        interpreted: whether Triton's interpreter runs the kernel. It knows no bfloat16, so that
            states become fp32 there.

    Raises:
        SoonerError: a dtype that no kernel reads, or a result that can't be written in place.
    """
    parts = [states.queries, states.keys, states.values]
    if parts[0].dtype not in KIND or any(part.dtype != parts[0].dtype for part in parts):
        found = ", ".join(str(part.dtype).removeprefix("torch.") for part in parts)
        raise SoonerError(f"kernels read states of one dtype, fp16, bf16 or fp32, not {found}")
    if into.output.stride(-1) != 1:
        raise SoonerError("kernels write outputs whose head dimension is contiguous")
    if interpreted and parts[0].dtype == torch.bfloat16:
        parts = [part.float() for part in parts]
    scale = states.scale * math.log2(math.e)
    q, k, v = (_rows(part if part.stride(-1) == 1 else part.contiguous()) for part in parts)
    out, mass = _rows(into.output), _rows(into.mass)
    return Attention(q, k, v, out, mass, heads.to(torch.int32), states.group, scale)


def _rows(tensor: Tensor) -> Rows:
    return Rows(tensor, tensor.stride(0), tensor.stride(1))


def sizes(states: States, tiles: Tiles) -> dict[str, Any]:
    """Constants of a launch."""
    dim = states.queries.shape[-1]
    return {
        "DIM": dim,
        "PADDED": max(16, 1 << (dim - 1).bit_length()),
        "ROWS": tiles.rows,
        "KEYS": tiles.keys,
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }
