"""A look at the last queries: the estimate from which dynamic patterns take their lines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .plane import Plane

LAST = 64


@dataclass(frozen=True, eq=False)
class Probe:
    """Attention of a plane's last queries on its keys, summed along lines, per head, in fp32.

    Each probing query spreads a mass of one, so sums are out of `queries`.

    Attributes:
        queries: how many queries were asked, at most `LAST` unless told otherwise.
        vertical: mass on each key, `[heads, keys]`.
        slash: mass at each distance `frontier - rank`, `[heads, keys]`.
        mass: log of the sum of exponentials of each query, `[heads, queries]`: with the scores of
            a sparse set it gives that set's recall.
        spread: entropy of each query's attention in nats, `[heads, queries]`: high where a query
            looks everywhere, as the horizontal lines of a grid do.
        frontier: of each asked query, `[queries]`.
    """

    queries: int
    vertical: Tensor
    slash: Tensor
    mass: Tensor
    spread: Tensor
    frontier: Tensor


def last_queries(plane: Plane, last: int) -> slice:
    """The plane's last queries that see a key."""
    blind = int((plane.frontier < 0).sum())
    count = len(plane.queries)
    return slice(max(count - last, min(blind, count)), count)


def probe(
    queries: Tensor,
    keys: Tensor,
    plane: Plane,
    scale: float,
    heads: Tensor | None = None,
    last: int = LAST,
) -> Probe:
    """Estimate attention from a plane's last queries (MMInference, algorithms 1 and 2).

    Head by head, so that memory is `last x keys`.

    Args:
        queries: of the whole row, `[heads, tokens, head_dim]`.
        keys: `[kv_heads, tokens, head_dim]`.
        heads: which heads to probe, all by default; the result is in their order.
    """
    picked = range(queries.shape[0]) if heads is None else heads.tolist()
    group = queries.shape[0] // keys.shape[0]
    which = last_queries(plane, last)
    frontier = plane.frontier[which]
    found: list[tuple[Tensor, ...]] = []
    for head in picked:
        asked = queries[head, plane.queries[which]]  # [last, head_dim]
        scores = (asked @ keys[head // group, plane.keys].T).float() * scale
        weights, mass = _weights(scores, frontier)
        entropy = -torch.special.xlogy(weights, weights).sum(1)
        found.append((weights.sum(0), _along(weights, frontier), mass, entropy))
    vertical, slash, mass, spread = (torch.stack(parts) for parts in zip(*found, strict=True))
    return Probe(len(frontier), vertical, slash, mass, spread, frontier)


def _weights(scores: Tensor, frontier: Tensor) -> tuple[Tensor, Tensor]:
    """Causal softmax and its log normaliser."""
    rank = torch.arange(scores.shape[1], device=scores.device)
    scores = scores.masked_fill(rank > frontier[:, None], -torch.inf)
    mass = scores.logsumexp(1)
    return (scores - mass[:, None]).exp(), mass


def _along(weights: Tensor, frontier: Tensor) -> Tensor:
    """Sums along `frontier - rank`, `[keys]`."""
    keys = weights.shape[1]
    total = weights.new_zeros(2 * keys)
    for weight, last in zip(weights, frontier.tolist(), strict=True):
        # Read from the frontier back, the distances are 0, 1, 2, ...
        total[: last + 1] += weight[: last + 1].flip(0)
    return total[:keys]


def recall(mass: Tensor, kept: Tensor) -> Tensor:
    """Share of attention that a sparse set holds, from log-sum-exps of all and of the set."""
    return (kept - mass).exp().clamp(max=1.0)
