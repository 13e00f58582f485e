"""Fused norms and rotations against their references, and their errors against torch's."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, TIMES, rms
from torch import Tensor

from sooner.engine.fusion import kernels, reference

HALVES = [torch.float32, torch.float16]
"""The interpreter knows no bfloat16; `test_sparse_compile.py` compiles it."""


def drawn(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("is_gemma", [False, True])
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 64), (2, 3, 48), (3, 2, 1000), (1, 2, 4, 128)])
def test_norms(shape: tuple[int, ...], adds: bool, is_gemma: bool, dtype: torch.dtype) -> None:
    x, weight = 3 * drawn(*shape, dtype=dtype), drawn(shape[-1], dtype=dtype, seed=1)
    residual = drawn(*shape, dtype=dtype, seed=2) if adds else None
    total, normed = kernels.add_rms_norm(x, residual, weight, 1e-6, is_gemma)
    whole = x if residual is None else residual + x
    assert torch.equal(total, whole), "rounded as torch rounds it"
    peer = reference.rms_norm(whole, weight, 1e-6, is_gemma)
    states, scale = whole.double(), weight.double() + is_gemma
    truth = states * (states.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * scale
    floor = torch.finfo(dtype).eps / 4
    assert rms(normed, truth) <= TIMES * max(rms(peer, truth), floor)
    assert float((normed.double() - peer.double()).abs().max()) <= 4 * torch.finfo(dtype).eps * (
        float(peer.abs().max())
    )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 2, 64), (7, 1, 128), (3, 3, 24)])
def test_rotations_are_the_reference_s_to_the_bit(
    heads: int, kv_heads: int, dim: int, shared: bool, dtype: torch.dtype
) -> None:
    """States are as projections leave them, with angles of each row or of all."""
    rows, entries = 2, 3
    queries = drawn(rows, entries, heads, dim, dtype=dtype).transpose(1, 2)
    keys = drawn(rows, entries, kv_heads, dim, dtype=dtype, seed=1).transpose(1, 2)
    angles = 9 * drawn(1 if shared else rows, entries, dim, dtype=torch.float32, seed=2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    assert kernels.turns(queries, keys, cos, sin)
    for made, peer in zip(
        kernels.rope(queries, keys, cos, sin), reference.rope(queries, keys, cos, sin), strict=True
    ):
        assert torch.equal(made, peer)
        assert made.transpose(1, 2).is_contiguous(), "as attention leaves its result"
    alone = kernels.turn_single(keys, cos, sin)
    assert torch.equal(alone, reference.turn(keys, cos[:, None], sin[:, None]))


def test_the_reference_is_what_transformers_computes() -> None:
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

    x, weight = drawn(2, 3, 64, dtype=torch.float16), drawn(64, dtype=torch.float16, seed=1)
    for kind in (LlamaRMSNorm, GemmaRMSNorm):
        norm = kind(64, eps=1e-5).to(DEVICE)
        norm.weight = torch.nn.Parameter(weight)
        ours = reference.rms_norm(x, weight, 1e-5, kind is GemmaRMSNorm)
        assert torch.equal(norm(x), ours)
    q, k = drawn(2, 4, 3, 64, dtype=torch.float16), drawn(2, 2, 3, 64, dtype=torch.float16)
    cos, sin = (drawn(2, 3, 64, dtype=torch.float16, seed=seed) for seed in (3, 4))
    for made, peer in zip(
        reference.rope(q, k, cos, sin), apply_rotary_pos_emb(q, k, cos, sin), strict=True
    ):
        assert torch.equal(made, peer)
