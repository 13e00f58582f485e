"""How sure a head may be of its tokens under greedy decoding.

A head learns the target's *distribution*, but greedy decoding says its mode: where the target is
undecided between neighbours, each of them looks unlikely although the likeliest is nearly certain
to be said. A tree that is grown by such confidences is broad where it should be deep. One
temperature on the head's scores mends that (temperature scaling, Guo et al. 2017).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...methods.eagle import EagleHead
from .batches import Batch
from .unroll import unroll

TEMPERATURES = [0.05 * 1.15**power for power in range(27)]
"""From 0.05 to 1.9; what is chosen is the least surprising one of them."""


@torch.no_grad()
def fit_temperature(head: EagleHead, adapter: Any, batches: Iterable[Batch], depth: int) -> float:
    """The temperature under which the target's greedy tokens are the least surprising.

    Args:
        head: in eval mode.
        adapter: the target's adapter.
        batches: held-out samples.
        depth: levels of a draft that count.
    """
    surprise = torch.zeros(len(TEMPERATURES), dtype=torch.float64)
    for batch in batches:
        for estimate in unroll(head, batch, depth):
            scores = adapter.logits(estimate.states.to(adapter.dtype)).float()[estimate.valid]
            said = batch.following[estimate.valid][:, None]  # [places, 1]
            for number, temperature in enumerate(TEMPERATURES):
                chance = (scores / temperature).log_softmax(-1).gather(1, said)
                surprise[number] -= float(chance.sum())
    return round(TEMPERATURES[int(surprise.argmin())], 4)
