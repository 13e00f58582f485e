"""The kernels at real sizes, on a real GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from sooner.sparse.attention import Partial, States, sparse_attention
from sooner.sparse.attention.partial import Reference
from sooner.sparse.attention.run import backend_for
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import Dense, Grid, HeadPattern, QBoundary, TwoDBoundary, VerticalSlash

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")
MIXED = (("text", 300), ("video", 6144), ("text", 501), ("image", 1000), ("video", 2048))
PATTERNS: list[HeadPattern] = [
    Dense(),
    VerticalSlash(),
    Grid(256),
    Grid(196, 7, sink=64, local=200),
    QBoundary({"video": Grid("frame"), "text": VerticalSlash(100, 200)}),
    TwoDBoundary({"video:video": Grid("frame"), "text:video": VerticalSlash(100, 200)}),
]


def states(tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> States:
    generator = torch.Generator(CUDA).manual_seed(0)
    q, k, v = (
        torch.randn(tokens, n, head_dim, generator=generator, device=CUDA, dtype=dtype)
        for n in (heads, kv_heads, kv_heads)
    )
    return States(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), head_dim**-0.5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
def test_real_sizes_match_the_reference(head_dim: int, dtype: torch.dtype) -> None:
    layout = PromptLayout.spans(*MIXED, frame=256).to(CUDA)
    row = states(len(layout), len(PATTERNS), 2, head_dim, dtype)
    made = sparse_attention(row, layout, PATTERNS, backend_for(CUDA, "triton"))
    expected = sparse_attention(row, layout, PATTERNS, Reference())
    torch.testing.assert_close(made.lse, expected.lse, rtol=1e-4, atol=1e-3)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(made.output, expected.output, rtol=4 * eps, atol=eps)


def test_the_dense_kernel_s_error_is_no_more_than_twice_torch_s() -> None:
    layout = PromptLayout.text(8191, CUDA)
    row = states(8191, 4, 2, 128, torch.bfloat16)
    made = sparse_attention(row, layout, [Dense()] * 4, backend_for(CUDA, "triton"))
    expected = Partial.empty(row)
    future = torch.ones(8191, 8191, dtype=torch.bool, device=CUDA).triu(1)
    for head in range(4):
        q, k, v = (
            part[n].double()
            for part, n in ((row.queries, head), (row.keys, head // 2), (row.values, head // 2))
        )
        scores = (q @ k.T * row.scale).masked_fill(future, -torch.inf)
        expected.output[head] = (scores.softmax(1) @ v).float()
    peer = scaled_dot_product_attention(
        row.queries[None], row.keys[None], row.values[None], is_causal=True, enable_gqa=True
    )[0]
    ours = (made.output.to(torch.bfloat16) - expected.output).square().mean().sqrt()
    peer_error = (peer - expected.output).square().mean().sqrt()
    assert ours <= 2 * peer_error


def test_a_million_tokens_are_addressed_without_overflow() -> None:
    tokens, picked = 1_048_576, [-1, -300, 500_000]
    layout, row = PromptLayout.text(tokens, CUDA), states(tokens, 24, 1, 128, torch.bfloat16)
    made = sparse_attention(row, layout, [Grid(256, 3)] * 24, backend_for(CUDA, "triton"))
    for place in picked:
        frontier = place % tokens
        ranks = torch.arange(frontier + 1, device=CUDA)
        seen = (ranks % 256 == 3) | ((frontier - ranks) % 256 == 0)
        assert frontier % 256 != 3, "a query of the horizontal line sees more"
        q, k = row.queries[-1, frontier].float(), row.keys[0, : frontier + 1][seen].float()
        weights = (k @ q * row.scale).softmax(0)
        expected = weights @ row.values[0, : frontier + 1][seen].float()
        torch.testing.assert_close(made.output[-1, frontier], expected, rtol=2e-2, atol=2e-3)
