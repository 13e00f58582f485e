"""What a sparse layer kept of the attention's mass."""

from __future__ import annotations

import torch
from torch import Tensor

from ..attention import Partial, States

ASKED = 64
"""Queries on which recall is measured."""


def recall(states: States, real: Tensor, made: Partial) -> Tensor:
    """Share of the dense attention's mass that each head kept, `[heads]`.

    The mean over at most `ASKED` evenly spaced queries, the last one among them: those at the end,
    where dynamic patterns look, would flatter these. Costs `ASKED` rows of scores a head.

    Args:
        real: slots that are no padding, ascending, `[tokens]`.
        made: the sparse result, with the masses of the pairs that were computed.
    """
    place = torch.linspace(0, len(real) - 1, min(ASKED, len(real)), device=real.device).long()
    later = torch.arange(len(real), device=real.device) > place[:, None]  # [asked, tokens]
    kept = []
    for head in range(states.queries.shape[0]):
        keys = states.keys[head // states.group, real]
        scores = (states.queries[head, real[place]] @ keys.T).float() * states.scale
        dense = scores.masked_fill_(later, -torch.inf).logsumexp(1)  # [asked]
        kept.append((made.mass[head, real[place]] - dense).exp().clamp(max=1).mean())
    return torch.stack(kept)
