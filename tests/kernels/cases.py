"""Poisoned states, and how far attention is from its value in fp64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sooner.sparse.attention import Partial, States
from sooner.sparse.modality import PromptLayout
from sooner.sparse.plane import Plane

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TIMES = 2.0
"""Our error may be twice that of torch's own attention in the same dtype, no more."""

LAYOUTS = {
    "text": PromptLayout.text(200),
    "video": PromptLayout.spans(("text", 9), ("video", 96), ("text", 21), frame=12),
    "interleaved": PromptLayout.spans(
        ("video", 30), ("text", 7), ("image", 25), ("video", 30), ("text", 71), frame=10
    ),
    "padded": PromptLayout.spans(
        ("padding", 7), ("text", 5), ("video", 72), ("padding", 11), frame=9
    ),
}


def states(
    layout: PromptLayout,
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> States:
    """Random states whose padding, and the memory behind every head dimension, is NaN.

    They are views of `[tokens, heads, head_dim]`, as a projection leaves them: not contiguous.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(count: int) -> Tensor:
        made = torch.full((len(layout), count, head_dim + 8), torch.nan)
        real = layout.where()
        made[real, :, :head_dim] = torch.randn(len(real), count, head_dim, generator=generator)
        return made.to(dtype).to(DEVICE)[..., :head_dim].transpose(0, 1)

    return States(draw(heads), draw(kv_heads), draw(kv_heads), head_dim**-0.5)


def nothing_yet(row: States) -> Partial:
    """An empty result whose memory is NaN: what a kernel does not write, or reads, shows."""
    into = Partial.empty(row)
    into.output.fill_(torch.nan)
    return into


def rms(made: Tensor, truth: Tensor) -> float:
    return float((made.double() - truth).square().mean().sqrt())


def hold_errors(
    row: States, layout: PromptLayout, plane: Plane, made: Partial, seen: Callable[[int], Tensor]
) -> None:
    """Checks every head's error, over the tokens that see something.

    It is within `TIMES` of torch's, or of rounding a result of size one where torch has none.

    Args:
        seen: a head's mask over the plane.
    """
    slots = layout.where().to(DEVICE)
    for head in range(len(row.queries)):
        mask = torch.zeros(len(layout), len(layout), dtype=torch.bool, device=DEVICE)
        mask[plane.queries[:, None], plane.keys] = seen(head)
        some = mask.any(1).nonzero()[:, 0]
        other = head // row.group
        q, k, v = row.queries[head, some], row.keys[other, slots], row.values[other, slots]
        mask = mask[some][:, slots]
        scores = (q.double() @ k.double().T * row.scale).masked_fill(~mask, -torch.inf)
        truth = scores.softmax(1) @ v.double()
        peer = scaled_dot_product_attention(q[None], k[None], v[None], mask[None], scale=row.scale)
        ours, peers = rms(made.output[head, some].to(q.dtype), truth), rms(peer[0], truth)
        assert ours <= TIMES * max(peers, torch.finfo(q.dtype).eps / 4), (head, ours, peers)


def agree(made: Partial, expected: Partial) -> None:
    """Checks the results of tokens that see something."""
    some = expected.lse > -torch.inf
    torch.testing.assert_close(made.output[some], expected.output[some], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(made.lse, expected.lse, rtol=1e-5, atol=1e-5)
