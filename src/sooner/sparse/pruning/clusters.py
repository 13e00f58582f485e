"""Density peaks (DPC-kNN): a few centres for many tokens, and each token's nearest one."""

from __future__ import annotations

import torch
from torch import Tensor


def density_peaks(states: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cluster `states [tokens, hidden]` around `count` of them.

    A centre is dense (its `count` nearest neighbours are near) and far from anything denser.

    Returns:
        The centres, ascending, `[count]`, and for each token which centre it belongs to, `[tokens]`
        in 0 to `count - 1`; a centre belongs to itself.
    """
    states = states.float()
    apart = torch.cdist(states, states) / states.shape[1] ** 0.5  # [tokens, tokens]
    near = apart.topk(min(count, len(states)), largest=False).values
    density = (-(near**2).mean(1)).exp()
    denser = density[None] > density[:, None]
    # The densest token has nothing above it, and is as far as anything can be.
    gap = torch.where(denser, apart, apart.max()).min(1).values
    centres = (gap * density).topk(count).indices.sort().values
    owner = apart[:, centres].argmin(1)
    owner[centres] = torch.arange(count, device=states.device)
    return centres, owner


def cluster_means(states: Tensor, owner: Tensor, count: int) -> Tensor:
    """Mean of the states of each cluster, `[count, hidden]`."""
    sums = states.new_zeros(count, states.shape[1]).index_add_(0, owner, states)
    sizes = torch.bincount(owner, minlength=count).to(states.dtype)
    return sums / sizes[:, None]
