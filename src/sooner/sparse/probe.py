"""A look at the last queries: the estimate from which dynamic patterns take their lines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .plane import Plane, pick

LAST = 64
HIDDEN = -1e30  # score of a key that a query does not see; finite, so that times zero it is zero


@dataclass(frozen=True, eq=False)
class Probe:
    """Attention that a plane's last queries pay to its keys, summed along lines, per head, in fp32.

    Each probing query spreads a probability of one, so sums are out of their number.

    Attributes:
        vertical: probability on each key, `[heads, keys]`.
        slash: probability at each distance `frontier - rank`, `[heads, keys]`.
        spread: entropy of each query's attention in nats, `[heads, queries]`: high where a query
            looks everywhere, as the horizontal lines of a grid do.
        frontier: of each asked query, `[queries]`.
    """

    vertical: Tensor
    slash: Tensor
    spread: Tensor
    frontier: Tensor


def last_queries(plane: Plane, last: int) -> slice:
    """Returns the plane's last queries that see a key."""
    blind = int((plane.frontier < 0).sum())
    count = len(plane.queries)
    return slice(max(count - last, min(blind, count)), count)


@torch.no_grad()
def probe(
    queries: Tensor,
    keys: Tensor,
    plane: Plane,
    scale: float,
    heads: Tensor | None = None,
    last: int = LAST,
) -> Probe:
    """Estimate attention from a plane's last queries (MMInference, algorithms 1 and 2).

    Head by head, so that memory is a few times `last x keys`, whatever the number of heads.

    Args:
        queries: of the whole row, `[heads, tokens, head_dim]`.
        keys: `[kv_heads, tokens, head_dim]`.
        heads: which heads to probe, all by default; the result is in their order.
    """
    picked = range(queries.shape[0]) if heads is None else heads.tolist()
    group = queries.shape[0] // keys.shape[0]
    which = last_queries(plane, last)
    frontier = plane.frontier[which]
    # `frontier - rank` leads from ranks to distances and, as it is its own inverse, back. What is
    # out of sight goes to ranks out of sight.
    apart = frontier[:, None] - torch.arange(len(plane.keys), device=frontier.device)
    turn = torch.where(apart < 0, apart + len(plane.keys), apart)  # [queries, keys]
    known = int(frontier[0]) + 1 if len(frontier) else 0  # keys that all of the queries see
    hidden = apart[:, known:] < 0
    results: list[tuple[Tensor, ...]] = []
    for head in picked:
        some = pick(queries[head], plane.queries[which]) * scale
        scores = (some @ pick(keys[head // group], plane.keys).T).float()
        scores[:, known:].masked_fill_(hidden, HIDDEN)
        weights = scores.softmax(1)
        slash = weights.gather(1, turn).sum(0)
        lse = scores.amax(1) - weights.amax(1).log() if len(plane.keys) else scores.sum(1)
        results.append((weights.sum(0), slash, lse - scores.mul_(weights).sum(1)))
    vertical, slash, spread = (torch.stack(parts) for parts in zip(*results, strict=True))
    return Probe(vertical, slash, spread, frontier)
