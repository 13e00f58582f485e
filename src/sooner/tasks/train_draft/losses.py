"""What a head is taught, and how well it drafts what it was not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from ...methods.eagle import EagleHead
from .batches import Batch
from .settings import HeadTraining
from .unroll import Estimate, unroll

TOP = 8
"""Continuations of a node in the default tree."""


class HeadLoss(nn.Module):
    """The loss of EAGLE (Li et al. 2024, section 3.2): `v_w` smooth L1 between the estimate and the
    target's state, and `p_w` cross-entropy between the distributions that the target's LM head
    makes of both; means over the places of the span, and over the steps of the unrolling.

    Args:
        head: what is trained.
        adapter: the target's adapter, frozen.
        settings: weights of both parts, steps of the unrolling.
    """

    def __init__(self, head: EagleHead, adapter: Any, settings: HeadTraining) -> None:
        super().__init__()
        self.head = head
        self.settings = settings
        self._adapter = (adapter,)  # in a tuple, so that its model is no part of this module

    def forward(self, batch: Batch, noise: Tensor | None = None) -> dict[str, Tensor]:
        """`loss`, and its parts `states` and `tokens`, each a scalar."""
        settings, adapter = self.settings, self._adapter[0]
        with torch.no_grad():
            wanted = adapter.logits(batch.wanted.to(adapter.dtype)).float().softmax(-1)
        far = torch.zeros((), device=batch.wanted.device)
        unlike = torch.zeros_like(far)
        for estimate in unroll(self.head, batch, settings.unroll, noise):
            share = estimate.valid / (estimate.valid.sum().clamp(min=1) * settings.unroll)
            distance = smooth_l1_loss(estimate.states.float(), batch.wanted, reduction="none").mean(
                -1
            )  # [rows, span]
            logits = adapter.logits(estimate.states.to(adapter.dtype)).float()
            entropy = -(wanted * logits.log_softmax(-1)).sum(-1)
            far = far + (share * distance).sum()
            unlike = unlike + (share * entropy).sum()
        loss = settings.state_weight * far + settings.token_weight * unlike
        return {"loss": loss, "states": far.detach(), "tokens": unlike.detach()}


class Acceptance:
    """Counts how deep drafts hold on held-out samples, wherever in an answer they begin.

    Args:
        depth: levels.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.tried = [0] * depth
        self.chain = [0] * depth
        self.tree = [0] * depth

    @torch.no_grad()
    def add(self, head: EagleHead, adapter: Any, batch: Batch) -> None:
        """Count one batch."""
        chain = tree = batch.valid
        for level, estimate in enumerate(unroll(head, batch, self.depth)):
            if level:  # what the draft below was worth, one place on
                chain, tree = _on(chain), _on(tree)
            best = self._best(adapter, estimate)
            hits = best == batch.following[..., None]  # [rows, span, TOP]
            chain = chain & hits[..., 0] & estimate.valid
            tree = tree & hits.any(-1) & estimate.valid
            self.tried[level] += int(estimate.valid.sum())
            self.chain[level] += int(chain.sum())
            self.tree[level] += int(tree.sum())

    def _best(self, adapter: Any, estimate: Estimate) -> Tensor:
        logits = adapter.logits(estimate.states.to(adapter.dtype))
        return logits.topk(min(TOP, logits.shape[-1])).indices

    def as_dict(self) -> dict[str, list[float]]:
        """Share of drafts whose first `d` tokens are all accepted, for each depth `d`.

        `chain` is of greedy chains; `tree` counts a level as held if the token is among the `TOP`
        best, which no tree can exceed.
        """
        return {"chain": self._shares(self.chain), "tree": self._shares(self.tree)}

    def _shares(self, counts: list[int]) -> list[float]:
        pairs = zip(counts, self.tried, strict=True)
        return [round(count / tried, 4) if tried else 0.0 for count, tried in pairs]


def _on(held: Tensor) -> Tensor:
    """`[rows, span]` one place on."""
    return torch.cat([torch.zeros_like(held[:, :1]), held[:, :-1]], 1)
