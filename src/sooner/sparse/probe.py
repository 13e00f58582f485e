"""A look at the last queries: the estimate from which dynamic patterns take their lines."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from .plane import Plane, pick

LAST = 64
HIDDEN = -1e30  # score of a key that a query does not see


@dataclass(frozen=True, eq=False)
class Probe:
    """Attention that a plane's last queries pay to its keys, summed along lines, per head, in fp32.

    Each probing query spreads a probability of one, so sums are out of `queries`.

    Attributes:
        queries: how many queries were asked, at most `LAST` unless told otherwise.
        vertical: probability on each key, `[heads, keys]`.
        slash: probability at each distance `frontier - rank`, `[heads, keys]`.
        lse: log of the sum of exponentials of each query, `[heads, queries]`: with the scores of
            a sparse set it gives that set's recall.
        spread: entropy of each query's attention in nats, `[heads, queries]`: high where a query
            looks everywhere, as the horizontal lines of a grid do.
        frontier: of each asked query, `[queries]`.
    """

    queries: int
    vertical: Tensor
    slash: Tensor
    lse: Tensor
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

    Head by head, so that memory is `2 x last x keys`, used again for every head.

    Args:
        queries: of the whole row, `[heads, tokens, head_dim]`.
        keys: `[kv_heads, tokens, head_dim]`.
        heads: which heads to probe, all by default; the result is in their order.
    """
    picked = range(queries.shape[0]) if heads is None else heads.tolist()
    group = queries.shape[0] // keys.shape[0]
    which = last_queries(plane, last)
    frontier = plane.frontier[which]
    board = _Board.of(frontier, len(plane.keys))
    results: list[tuple[Tensor, ...]] = []
    read, seen = -1, keys[:0]
    for head in picked:
        if read != head // group:
            read = head // group
            seen = pick(keys[read], plane.keys)
        results.append(board.summed(pick(queries[head], plane.queries[which]), seen, scale))
    vertical, slash, lse, spread = (torch.stack(parts) for parts in zip(*results, strict=True))
    return Probe(len(frontier), vertical, slash, lse, spread, frontier)


@dataclass(frozen=True, eq=False)
class _Board:
    """Room for one head's weights, with zeros on the left, so that diagonals are rows of a view.

    Attributes:
        room: `[queries, queries + keys]`, fp32; the first `queries` columns are zeros.
        logs: as large as the weights, `[queries, keys]`.
        frontier: `[queries]`.
        hidden: which of the keys after the first frontier are out of sight, `[queries, ...]`.
        runs: rows whose frontiers rise by one: first, end, and the first one's frontier.
    """

    room: Tensor
    logs: Tensor
    frontier: Tensor
    hidden: Tensor
    runs: list[tuple[int, int, int]]

    @classmethod
    def of(cls, frontier: Tensor, keys: int) -> _Board:
        count, known = len(frontier), frontier.tolist()
        room = torch.zeros(count, count + keys, device=frontier.device)
        rank = torch.arange(known[0] + 1 if known else 0, keys, device=frontier.device)
        breaks = [i for i in range(1, count) if known[i] != known[i - 1] + 1]
        edges = pairwise([0, *breaks, count] if count else [])
        runs = [(first, end, known[first]) for first, end in edges]
        logs = torch.empty(count, keys, device=frontier.device)
        return cls(room, logs, frontier, rank > frontier[:, None], runs)

    def summed(self, queries: Tensor, keys: Tensor, scale: float) -> tuple[Tensor, ...]:
        """Returns probability by key and by distance, `[keys]`; log-sum-exp and entropy,
        `[queries]`.
        """
        weights, logs = self.room[:, len(queries) :], self.logs
        torch.mul(queries @ keys.T, scale, out=logs)
        # Finite, so that nothing times its weight of zero is zero.
        logs[:, logs.shape[1] - self.hidden.shape[1] :].masked_fill_(self.hidden, HIDDEN)
        top = logs.amax(1, keepdim=True) if len(keys) else logs.new_zeros(len(queries), 1)
        logs -= top
        torch.exp(logs, out=weights)
        total = weights.sum(1)
        each = 1 / total  # [queries]
        entropy = total.log() - torch.bmm(weights[:, None], logs[..., None])[:, 0, 0] * each
        return each @ weights, self._along(each), top[:, 0] + total.log(), entropy

    def _along(self, each: Tensor) -> Tensor:
        """Returns sums along `frontier - rank`, `[keys]`, of the weights times `each`."""
        total = each.new_zeros(self.logs.shape[1])
        width = self.room.shape[1]
        for first, end, frontier in self.runs:
            rows = end - first
            # Shifted by one from row to row, columns are diagonals, the nearest at the end.
            start = first * width + len(each) - rows + 1
            sheared = self.room.as_strided((rows, frontier + rows), (width + 1, 1), start)
            total[: frontier + rows] += (each[first:end] @ sheared).flip(0)
        return total
