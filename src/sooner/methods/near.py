"""The longest, then nearest, of the acceptable paths through a draft tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..decoding.acceptance import Verdict
from ..decoding.tree import Tree


@dataclass(frozen=True)
class Judged:
    """A verdict, and how far its accepted tokens are from the target's choices.

    Attributes:
        verdict: what is accepted.
        dims: dimension that each token of the path speaks of, `[rows, depth]`.
        distance: signed, in bins, from the target's choice there, `[rows, depth]`.
    """

    verdict: Verdict
    dims: Tensor
    distance: Tensor

    def committed(self, room: Sequence[int]) -> Tensor:
        """Which tokens of the path are accepted and fit into `room` of each row,
        `[rows, depth]` bool."""
        accepted = self.verdict.accepted
        most = torch.minimum(accepted, torch.tensor(list(room), device=accepted.device))
        steps = torch.arange(self.distance.shape[1], device=accepted.device)
        return steps < most[:, None]


def straight(tree: Tree, choices: Tensor, hit: Tensor, distance: Tensor, dims: Tensor) -> Judged:
    """Chains, or no draft at all: accept up to the first node that is no hit; see `nearest`."""
    accepted = hit.long().cumprod(1).sum(1)  # [rows]
    path = torch.arange(1, 1 + tree.nodes, device=hit.device).expand(tree.rows, -1)
    bonus = choices.gather(1, accepted[:, None])[:, 0]
    return Judged(Verdict(path, accepted, bonus), dims, distance)


def nearest(
    ancestors: Tensor, choices: Tensor, hit: Tensor, distance: Tensor, dims: Tensor
) -> Judged:
    """Accept the longest path of hits; of equally long ones that with the smallest sum of absolute
    distances, then that whose last node has the lowest index.

    Args:
        ancestors: of the trees, `[rows, 1 + nodes, 1 + nodes]` bool (`Tree.ancestors`).
        choices: the target's choice at each block entry, `[rows, 1 + nodes]`.
        hit: acceptable nodes, `[rows, nodes]` bool; padding is none.
        distance: signed distance of each node from the choice above it, `[rows, nodes]`.
        dims: what each node speaks of, `[rows, nodes]`.
    """
    verdict = _longest(ancestors, choices, hit, distance.abs())
    nodes = (verdict.path - 1).clamp(min=0)
    return Judged(verdict, dims.gather(1, nodes), distance.gather(1, nodes))


def _longest(ancestors: Tensor, choices: Tensor, hit: Tensor, distance: Tensor) -> Verdict:
    root = torch.zeros_like(distance[:, :1])
    good = torch.cat([torch.ones_like(hit[:, :1]), hit], 1)  # [rows, entries]; the root is good
    whole = (~ancestors | good[:, None]).all(-1)  # [rows, entries]
    depths = ancestors.sum(-1) - 1  # [rows, entries]
    apart = torch.cat([root, distance], 1)[:, None]  # [rows, 1, entries]
    sums = torch.where(ancestors & whole[..., None], apart, 0).sum(-1)  # [rows, entries]
    last = _first_best(torch.where(whole, depths, -1), sums)  # [rows]
    accepted = depths.gather(1, last[:, None])[:, 0]
    on_path = ancestors[torch.arange(len(last), device=last.device), last]
    on_path[:, 0] = False
    # Parents precede children, so the entries of the path in ascending order are the path.
    order = torch.where(on_path, 0, 1).argsort(dim=1, stable=True)
    inside = torch.arange(order.shape[1], device=order.device) < accepted[:, None]
    path = torch.where(inside, order, 0)[:, : hit.shape[1]]
    return Verdict(path, accepted, choices.gather(1, last[:, None])[:, 0])


def _first_best(depths: Tensor, sums: Tensor) -> Tensor:
    """The entry with the largest depth, then the smallest sum, then the lowest index, `[rows]`.

    All three in one number, so that no two entries tie.
    """
    entries = depths.shape[1]
    spread = sums.max() + 1
    index = torch.arange(entries, device=depths.device)
    return ((depths * spread - sums) * entries - index).argmax(1)
