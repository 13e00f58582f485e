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

Criterion = Literal["uv-prune", "similarity", "uniform", "random"]
CRITERIA: tuple[Criterion, ...] = ("uv-prune", "similarity", "uniform", "random")


def similarity(states: Tensor, visual: Tensor) -> Tensor:
    """Sum over text tokens of the cosine with each visual token (eq. 2): `[visual tokens]`.

    Args:
        states: one row's hidden states, `[width, hidden]`.
        visual: which of them are visual, `[width]` bool; the others are text.
    """
    unit = normalize(states.float(), dim=-1)
    return unit[visual] @ unit[~visual].sum(0)


def similarity_variation(first: Tensor, last: Tensor, visual: Tensor) -> Tensor:
    """UV-Prune's score (eq. 3): growth of the similarity from `first` to `last`, both
    `[width, hidden]`."""
    return similarity(last, visual) - similarity(first, visual)


def keep_count(tokens: int, ratio: float) -> int:
    """Tokens left of `tokens` when the share `ratio` is pruned; at least one of any."""
    return min(tokens, max(1, round(tokens * (1 - ratio)))) if tokens else 0


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
        criterion: `uv-prune`; `similarity` (at layer L, without variation); `uniform`; `random`.
        ratio: share that is pruned (alpha).
        first, last: states before the decoder and after layer L, `[width, hidden]`.
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
    return top(similarity_variation(first, last, visual), count)
