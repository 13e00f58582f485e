"""Attention in parts: outputs with their log-sum-exps, merged without loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class States:
    """The rotated states that one row has.

    Attributes:
        queries: `[heads, tokens, head_dim]`.
        keys, values: `[kv_heads, tokens, head_dim]`; query head `h` reads `h // group`.
        scale: factor of the scores.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    scale: float

    @property
    def group(self) -> int:
        """Returns the number of query heads that share a key head."""
        return self.queries.shape[0] // self.keys.shape[0]


@dataclass(frozen=True, eq=False)
class Partial:
    """Holds attention over the keys seen so far.

    Attributes:
        output: `[heads, tokens, head_dim]`, fp32, normalised over those keys.
        lse: their log-sum-exp, `[heads, tokens]`, fp32; minus infinity where there were none.
    """

    output: Tensor
    lse: Tensor

    @classmethod
    def empty(cls, states: States) -> Partial:
        """Returns an object that has seen nothing yet."""
        shape = states.queries.shape
        output = torch.zeros(shape, dtype=torch.float32, device=states.queries.device)
        return cls(output, output.new_full(shape[:2], -torch.inf))

    def add(self, heads: Tensor, slots: Tensor, output: Tensor, lse: Tensor) -> None:
        """Merge attention over *other* keys into some queries of some heads, in place.

        `softmax` over a union of disjoint sets is their outputs weighted by `exp(lse)`.

        Args:
            heads: head numbers, `[picked]`.
            slots: query slots, `[queries]`.
            output: `[picked, queries, head_dim]`.
            lse: `[picked, queries]`; where it is minus infinity, `output` does not count.
        """
        heads, slots = heads[:, None], slots[None]
        before = self.lse[heads, slots]
        if bool((before == -torch.inf).all()):
            self.output[heads, slots] = torch.where(
                (lse > -torch.inf)[..., None], output.float(), 0
            )
            self.lse[heads, slots] = lse.float()
            return
        after = torch.logaddexp(before, lse.float())
        old, new = (
            torch.where(part == -torch.inf, 0.0, (part - after).exp())[..., None]
            for part in (before, lse.float())
        )
        fresh = torch.where(new > 0, output.float(), 0.0)  # an empty set may have NaN outputs
        self.output[heads, slots] = self.output[heads, slots] * old + fresh * new
        self.lse[heads, slots] = after
