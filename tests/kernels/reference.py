"""What each kernel computes, in plain torch: dense, lines, grid, and regions of modalities."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from sooner.sparse.attention.partial import Partial, States
from sooner.sparse.pairs import GridIndex, LineIndex
from sooner.sparse.plane import Plane


def dense(
    states: States, plane: Plane, heads: Tensor, into: Partial, first: Tensor | None = None
) -> None:
    """All causal pairs; see `kernels.dense.dense` for the arguments."""
    ranks = torch.arange(len(plane.keys), device=plane.keys.device)
    places = torch.arange(len(plane.queries), device=plane.keys.device)
    for number, head in enumerate(heads.tolist()):
        live = places >= (0 if first is None else first[number])
        seen = (ranks <= plane.frontier[:, None]) & live[:, None]
        attend(states, head, plane.queries, plane.keys, seen, into)


def attend(
    states: States, head: int, queries: Tensor, keys: Tensor, seen: Tensor, into: Partial
) -> None:
    """Softmax attention of some slots on some slots under a mask, merged into `into`.

    Args:
        head: of the queries.
        queries, keys: slots, `[queries]`, `[keys]`.
        seen: `[queries, keys]` bool.
    """
    queried = states.queries[head, queries].float()  # [queries, head_dim]
    known = states.keys[head // states.group, keys].float()
    scores = (queried @ known.T * states.scale).masked_fill(~seen, -torch.inf)
    lse = scores.logsumexp(1)  # [queries]
    weights = (scores - lse[:, None]).exp().nan_to_num(0.0)
    output = weights @ states.values[head // states.group, keys].float()
    head_index = torch.tensor([head], device=queries.device)
    into.add(head_index, queries, output[None], lse[None])


def vertical_slash(
    states: States, plane: Plane, index: LineIndex, heads: Tensor, into: Partial
) -> None:
    """Lines and last queries of each head; see `Backend.lines`."""
    last = (len(plane.queries) - index.bottom).clamp(min=0)
    for number, head in enumerate(heads.tolist()):
        for block in range(len(plane.keys) // index.block + 1):
            mine = (plane.frontier >= 0) & (plane.frontier // index.block == block)
            mine[int(last[number]) :] = False
            ranks = _ranks(plane, index, number, block)
            seen = ranks <= plane.frontier[mine, None]
            attend(states, head, plane.queries[mine], plane.keys[ranks], seen, into)
    dense(states, plane, heads, into, last)


def _ranks(plane: Plane, index: LineIndex, number: int, block: int) -> Tensor:
    """Ranks that queries of a block see, causality aside: its own, its windows, and columns."""
    start, count = block * index.block, len(plane.keys)
    before = index.covered[number, :start].nonzero()[:, 0] + 1
    block_ranks = torch.arange(start, min(start + index.block, count), device=before.device)
    ranks = torch.cat(
        [start - before, block_ranks, index.vertical[number]]
    ).unique()  # a pair counts once
    return ranks[ranks < count]


def grid(states: States, plane: Plane, index: GridIndex, heads: Tensor, into: Partial) -> None:
    """Lines of each head; see `Backend.grid`."""
    for number, head in enumerate(heads.tolist()):
        _classes(states, plane, index, number, head, into)
        _band(states, plane, index, number, head, into)


def _classes(
    states: States, plane: Plane, index: GridIndex, number: int, head: int, into: Partial
) -> None:
    """Queries of each class against the classes of keys that they see: dense causal blocks."""
    stride, phase = int(index.stride[number]), int(index.phase[number])
    ranks = torch.arange(len(plane.keys), device=plane.keys.device)
    for residue in range(stride):
        mine = (plane.frontier >= 0) & (plane.frontier % stride == residue)
        is_seen = torch.zeros_like(ranks, dtype=torch.bool)
        if index.hline[number] and residue == phase:
            is_seen[:] = True
        if index.slash[number]:
            is_seen |= ranks % stride == residue
        if index.vline[number]:
            is_seen |= ranks % stride == phase
        seen = ranks[is_seen] <= plane.frontier[mine, None]
        attend(states, head, plane.queries[mine], plane.keys[is_seen], seen, into)


def _band(
    states: States, plane: Plane, index: GridIndex, number: int, head: int, into: Partial
) -> None:
    """Segments, sinks and nearest keys, less what the classes have counted."""
    stride, phase = index.stride[number], index.phase[number]
    frontier, ranks = plane.frontier[:, None], torch.arange(len(plane.keys))
    ranks = ranks.to(frontier.device)
    seen = (frontier - ranks < index.local[number]) | (ranks < index.sink[number])
    if index.segment[number]:
        seen |= (frontier - phase) // stride == (ranks - phase) // stride
    if index.hline[number]:
        seen &= frontier % stride != phase
    if index.vline[number]:
        seen &= ranks % stride != phase
    if index.slash[number]:
        seen &= (frontier - ranks) % stride != 0
    seen &= ranks <= frontier
    attend(states, head, plane.queries, plane.keys, seen, into)


class Op(Protocol):
    """A modality's attention over a plane whose queries have been gathered."""

    def __call__(self, states: States, plane: Plane, heads: Tensor, into: Partial) -> None: ...


def q_boundary(states: States, plane: Plane, heads: Tensor, into: Partial, op: Op) -> None:
    """Permute queries, run `op`, and permute its result back into `into`.

    Args:
        op: attention of kind dense, lines or grid; gets a plane whose queries are `0, 1, ...`.
    """
    gathered = States(
        states.queries[:, plane.queries], states.keys, states.values, states.scale
    )  # queries: [heads, queries, head_dim]
    places = torch.arange(len(plane.queries), device=plane.queries.device)
    inner = Plane(places, plane.keys, plane.frontier, plane.period, plane.offset)
    part = Partial.empty(gathered)
    op(gathered, inner, heads, part)
    into.add(heads, plane.queries, part.output[heads], part.lse[heads])


def two_d_boundary(states: States, plane: Plane, heads: Tensor, into: Partial, op: Op) -> None:
    """Permute keys and values, then go on as with a query boundary.

    Args:
        op: as in `q_boundary`; gets a plane whose queries and keys are `0, 1, ...`.
    """
    gathered = States(
        states.queries, states.keys[:, plane.keys], states.values[:, plane.keys], states.scale
    )  # keys: [kv_heads, keys, head_dim]
    ranks = torch.arange(len(plane.keys), device=plane.keys.device)
    inner = Plane(plane.queries, ranks, plane.frontier, plane.period, plane.offset)
    q_boundary(gathered, inner, heads, into, op)
