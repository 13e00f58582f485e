"""The fused operators, each of which fake tensors see as one; see `reference` for what they do."""

from __future__ import annotations

import torch
from torch import Tensor

from . import reference

_LIBRARY = torch.library.Library("sooner", "FRAGMENT")
_LIBRARY.define("rms_norm(Tensor x, Tensor weight, float eps, bool is_gemma) -> Tensor")
_LIBRARY.define(
    "add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps, bool is_gemma) "
    "-> (Tensor, Tensor)"
)
_LIBRARY.define("rope(Tensor queries, Tensor keys, Tensor cos, Tensor sin) -> (Tensor, Tensor)")
_LIBRARY.define("turn(Tensor states, Tensor cos, Tensor sin) -> Tensor")


def rms_norm(x: Tensor, weight: Tensor, eps: float, is_gemma: bool) -> Tensor:
    """Returns the norm of `x [..., width]`."""
    normed: Tensor = torch.ops.sooner.rms_norm.default(x, weight, eps, is_gemma)
    return normed


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, is_gemma: bool
) -> tuple[Tensor, Tensor]:
    """Returns `residual + x`, and its norm, `[..., width]` each."""
    operator = torch.ops.sooner.add_rms_norm.default
    both: tuple[Tensor, Tensor] = operator(x, residual, weight, eps, is_gemma)
    return both


def rope(queries: Tensor, keys: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Returns queries and keys `[rows, heads, entries, dim]` at their positions."""
    rotated: tuple[Tensor, Tensor] = torch.ops.sooner.rope.default(queries, keys, cos, sin)
    return rotated


def turn(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Returns queries or keys `[rows, heads, entries, dim]` rotated by angles `[rows or 1, 1,
    entries, dim]`."""
    if torch.is_grad_enabled():
        return reference.turn(states, cos, sin)
    rotated: Tensor = torch.ops.sooner.turn.default(states, cos, sin)
    return rotated


def _rms_norm_on_cuda(x: Tensor, weight: Tensor, eps: float, is_gemma: bool) -> Tensor:
    from . import kernels  # imports Triton

    if not kernels.norms(x, weight):
        return reference.rms_norm(x, weight, eps, is_gemma)
    return kernels.add_rms_norm(x, None, weight, eps, is_gemma)[1]


def _add_rms_norm_on_cuda(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, is_gemma: bool
) -> tuple[Tensor, Tensor]:
    from . import kernels

    alike = x.shape == residual.shape and x.dtype == residual.dtype and residual.is_contiguous()
    if not (alike and kernels.norms(x, weight)):
        return reference.add_rms_norm(x, residual, weight, eps, is_gemma)
    return kernels.add_rms_norm(x, residual, weight, eps, is_gemma)


def _rope_on_cuda(queries: Tensor, keys: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    from . import kernels

    rotate = kernels.rope if kernels.turns(queries, keys, cos, sin) else reference.rope
    return rotate(queries, keys, cos, sin)


def _turn_on_cuda(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    from . import kernels

    angles = cos[:, 0], sin[:, 0]
    if not (states.dim() == 4 == cos.dim() and kernels.turns(states, states, *angles)):
        return reference.turn(states, cos, sin)
    return kernels.turn_single(states, *angles)


for name, plain, on_cuda in (
    ("rms_norm", reference.rms_norm, _rms_norm_on_cuda),
    ("add_rms_norm", reference.add_rms_norm, _add_rms_norm_on_cuda),
    ("rope", reference.rope, _rope_on_cuda),
    ("turn", reference.turn, _turn_on_cuda),
):
    _LIBRARY.impl(name, plain, "CompositeExplicitAutograd")
    _LIBRARY.impl(name, on_cuda, "CUDA")


@torch.library.register_fake("sooner::rms_norm", lib=_LIBRARY)
def _(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x)


@torch.library.register_fake("sooner::add_rms_norm", lib=_LIBRARY)
def _(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.register_fake("sooner::rope", lib=_LIBRARY)
def _(queries: Tensor, keys: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return torch.empty_like(queries), torch.empty_like(keys)


@torch.library.register_fake("sooner::turn", lib=_LIBRARY)
def _(states: Tensor, cos: Tensor, *_: object) -> Tensor:
    return torch.empty_like(states, dtype=torch.promote_types(states.dtype, cos.dtype))
