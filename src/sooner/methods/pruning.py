"""Which visual tokens a draft needs: scores over the visual tokens of one prompt, larger is kept.

UV-Prune (ParallelVLM, Kong et al. 2025, eq. 2 to 4) scores a video token by how much its cosine
similarity with the text *grows* from the embeddings to layer L of the target. The sum over layers
of eq. 3 telescopes to `S^L - S^0`, and the sum over text tokens of a cosine is one dot product
with the sum of the normalised text states, so the cost is O(m d) for m tokens of width d.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ..sparse.pruning.keep import keep_count

Criterion = Literal[
    "uv-prune", "similarity", "attention", "attention-variation", "uniform", "random"
]
CRITERIA: tuple[Criterion, ...] = (
    "uv-prune",
    "similarity",
    "attention",
    "attention-variation",
    "uniform",
    "random",
)
BY_ATTENTION: tuple[Criterion, ...] = ("attention", "attention-variation")
"""Criteria that rank by what the text attends to instead of by states."""


def similarity(states: Tensor, visual: Tensor) -> Tensor:
    """Sum over text tokens of the cosine with each visual token (eq. 2): `[visual tokens]`.

    Args:
        states: one row's hidden states, `[width, hidden]`.
        visual: which of them are visual, `[width]` bool; the others are text.
    """
    states = states.float()
    text = normalize(states[~visual], dim=-1).sum(0)  # [hidden]
    # Norms are divided by last, so that no normalised copy of the video is made.
    lengths = states.norm(dim=-1).clamp_min(torch.finfo(states.dtype).tiny)
    return ((states @ text) / lengths)[visual]


def similarity_variation(first: Tensor, last: Tensor, visual: Tensor) -> Tensor:
    """UV-Prune's score (eq. 3): growth of the similarity from `first` to `last`, both
    `[width, hidden]`."""
    return similarity(last, visual) - similarity(first, visual)


def attention(paid: Tensor, visual: Tensor) -> Tensor:
    """Score of a visual token: the attention it got, `[visual tokens]`.

    Args:
        paid: one row's attention to each token, `[width]`.
        visual: which of them are visual, `[width]` bool.
    """
    return paid[visual]


def attention_variation(first: Tensor, last: Tensor, visual: Tensor) -> Tensor:
    """Growth of that attention from the first layer to layer L, which cancels what a place alone
    attracts; both `[width]`."""
    return attention(last, visual) - attention(first, visual)


def top(scores: Tensor, count: int) -> Tensor:
    """Indices of the `count` largest scores in ascending order (eq. 4)."""
    return scores.topk(count).indices.sort().values


def uniform(tokens: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """`count` indices spread evenly over `tokens`, ascending."""
    return (torch.arange(count, device=device) * tokens) // max(count, 1)


def rank(
    criterion: Criterion,
    ratio: float,
    first: Tensor,
    last: Tensor,
    visual: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Indices, among the visual tokens, of those kept by a criterion, ascending.

    Args:
        criterion: `uv-prune`; `similarity` (at layer L, without variation); `attention` (at layer
            L) and its variation; `uniform`; `random`.
        ratio: share that is pruned (alpha).
        first, last: states before the decoder and after layer L, `[width, hidden]`; for criteria of
            `BY_ATTENTION` what each token got at the first layer and at layer L, `[width]`.
        visual: `[width]` bool.
    """
    tokens = int(visual.sum())
    count = keep_count(tokens, ratio)
    if count == tokens:
        return torch.arange(tokens, device=visual.device)
    if criterion == "uniform":
        return uniform(tokens, count, visual.device)
    if criterion == "random":
        order = torch.randperm(tokens, generator=generator)
        return order[:count].sort().values.to(visual.device)
    if criterion == "similarity":
        return top(similarity(last, visual), count)
    if criterion == "attention":
        return top(attention(last, visual), count)
    if criterion == "attention-variation":
        return top(attention_variation(first, last, visual), count)
    return top(similarity_variation(first, last, visual), count)
