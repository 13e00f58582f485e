"""Sparse attention through torch's FlexAttention: a backend for comparison, and a way out.

FlexAttention skips blocks of 128 x 128 pairs in which nothing is seen. Nothing is permuted for it,
so the lines of a grid, which cross every block, save it no work: that difference is what our own
kernels are measured against.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from ..pairs import GridIndex, Index, LineIndex, causal
from ..plane import Plane
from .partial import Partial, States

BLOCK = 128
Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From row, head, query and key numbers to whether the pair is seen."""


class Flex:
    """Runs an index's formula as a FlexAttention mask, on gathered queries and keys.

    Args:
        compiled: whether FlexAttention is compiled, which takes Triton on a GPU; only there unless
            given. Without it every score is held in memory.
    """

    name = "flex"

    def __init__(self, compiled: bool | None = None) -> None:
        self.compiled = compiled

    def dense(self, states: States, plane: Plane, heads: Tensor, into: Partial) -> None:
        """Attends to all causal pairs."""
        self._attend(states, plane, heads, dense_mask(plane), None, into)

    def lines(
        self, states: States, plane: Plane, index: LineIndex, heads: Tensor, into: Partial
    ) -> None:
        """Attends to vertical lines and windows."""
        self._attend(states, plane, heads, line_mask(plane, index), index, into)

    def grid(
        self, states: States, plane: Plane, index: GridIndex, heads: Tensor, into: Partial
    ) -> None:
        """Attends to evenly spaced lines."""
        self._attend(states, plane, heads, grid_mask(plane, index), index, into)

    def _attend(
        self,
        states: States,
        plane: Plane,
        heads: Tensor,
        mask: Mask,
        index: Index | None,
        into: Partial,
    ) -> None:
        if not (len(plane.queries) and len(plane.keys) and len(heads)):
            return
        rows, columns = heads[:, None], (heads // states.group)[:, None]
        q = states.queries[rows, plane.queries][None]  # [1, picked, queries, head_dim]
        k = states.keys[columns, plane.keys][None]
        v = states.values[columns, plane.keys][None]
        compiled = q.is_cuda if self.compiled is None else self.compiled
        run = _compiled() if compiled else flex_attention
        blocks = block_mask(plane, index, len(heads), mask)
        output, aux = run(
            q, k, v, block_mask=blocks, scale=states.scale, return_aux=AuxRequest(lse=True)
        )
        into.add(heads, plane.queries, output[0], aux.lse[0])


@cache
def _compiled() -> Any:
    """Returns FlexAttention, compiled once and for all lengths."""
    return torch.compile(flex_attention, dynamic=True)


def dense_mask(plane: Plane) -> Mask:
    """Returns causality."""
    return lambda row, head, query, key: key <= plane.frontier[query]


def line_mask(plane: Plane, index: LineIndex) -> Mask:
    """Returns the formula of `LineIndex`."""
    columns = torch.stack([index.columns(head, len(plane.keys)) for head in range(index.heads)])
    last, covered = len(plane.queries) - index.bottom, index.covered

    def seen(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        frontier = plane.frontier[query]
        before = index.starts(frontier) - key
        visible = (before <= 0) | covered[head, (before - 1).clamp(min=0)]
        visible = visible | columns[head, key] | (query >= last[head])
        return visible & (key <= frontier)

    return seen


def grid_mask(plane: Plane, index: GridIndex) -> Mask:
    """Returns the formula of `GridIndex`."""

    def seen(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        frontier, stride, phase = plane.frontier[query], index.stride[head], index.phase[head]
        visible = (key < index.sink[head]) | (frontier - key < index.local[head])
        visible = visible | (index.hline[head] & (frontier % stride == phase))
        visible = visible | (index.vline[head] & (key % stride == phase))
        visible = visible | (index.slash[head] & ((frontier - key) % stride == 0))
        same_class = (frontier - phase) // stride == (key - phase) // stride
        return (visible | (index.segment[head] & same_class)) & (key <= frontier)

    return seen


def block_mask(plane: Plane, index: Index | None, heads: int, mask: Mask) -> BlockMask:
    """Returns which blocks hold a pair, and which hold nothing else, from what the index says
    itself.

    Found one row of blocks at a time, so that memory grows with the keys only.
    """
    some, full = [], []
    for head in range(heads):
        for start in range(0, len(plane.queries), BLOCK):
            part = slice(start, start + BLOCK)
            seen = causal(plane, part)[2] if index is None else index.seen(head, plane, part)
            count = _by_block(seen.sum(0))  # [blocks], pairs of each
            some.append(count > 0)
            full.append(count == BLOCK * BLOCK)
    shape = (1, heads, -1, len(some[0]))
    whole = torch.stack(full).view(shape)
    partly = torch.stack(some).view(shape) & ~whole
    return BlockMask.from_kv_blocks(
        *_listed(partly),
        *_listed(whole),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask,
        seq_lengths=(len(plane.queries), len(plane.keys)),
    )


def _by_block(count: Tensor) -> Tensor:
    return torch.nn.functional.pad(count, (0, -len(count) % BLOCK)).view(-1, BLOCK).sum(1)


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Returns how many blocks each row of them has, and which, those first: int32."""
    order = blocks.to(torch.int32).sort(dim=-1, descending=True, stable=True).indices
    return blocks.sum(-1).to(torch.int32), order.to(torch.int32)
