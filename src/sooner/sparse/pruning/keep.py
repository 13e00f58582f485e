"""Counting and choosing: how many of some tokens are kept, and which."""

from __future__ import annotations

import torch
from torch import Tensor


def keep_count(tokens: int, ratio: float) -> int:
    """Tokens left of `tokens` when the share `ratio` is dropped; at least one of any."""
    return min(tokens, max(1, round(tokens * (1 - ratio)))) if tokens else 0


def keep_best(visual: Tensor, scores: Tensor, count: int) -> Tensor:
    """Places of all other tokens and of the `count` best visual ones, ascending.

    Args:
        visual: which tokens are visual, `[tokens]` bool.
        scores: of every token, `[tokens]`; only those of visual ones are read.
        count: visual tokens to keep.
    """
    kept = ~visual
    places = visual.nonzero()[:, 0]
    kept[places[scores[places].topk(count).indices]] = True
    return kept.nonzero()[:, 0]


def instruction(visual: Tensor) -> Tensor:
    """Places of the text behind the last visual token (the last token of all, if there is none).

    A decoder is causal: text in front of a picture has not seen it and can't judge it.
    """
    behind = int(visual.nonzero()[-1]) + 1 if bool(visual.any()) else 0
    first = min(behind, len(visual) - 1)
    return torch.arange(first, len(visual), device=visual.device)
