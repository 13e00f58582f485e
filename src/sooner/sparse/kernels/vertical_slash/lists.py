"""The lists that the kernel follows, made from an index on its device, without asking the host."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ....errors import SoonerError
from ...index import LineIndex
from ...plane import Plane


class LineLists(NamedTuple):
    """A `LineIndex` as a kernel reads it; all are int32 and contiguous.

    Attributes:
        diagonals: those that are seen, nearest first, `[heads, blocks]`; behind them anything.
        reach: how many of them a query of each block has, `[heads, blocks]`.
        covered: 1 where a diagonal is seen, `[heads, blocks]`.
        columns: vertical lines, ascending, `[heads, lines]`; behind them the number of keys.
        before: how many lie in blocks before each block, `[heads, blocks]`.
        last: place of the first query that sees everything, `[heads]`; not the lists' affair.
        blocks, lines: rows' lengths.
    """

    diagonals: Tensor
    reach: Tensor
    covered: Tensor
    columns: Tensor
    before: Tensor
    last: Tensor
    blocks: int
    lines: int


def line_lists(plane: Plane, index: LineIndex) -> LineLists:
    """What the kernel follows.

    Raises:
        SoonerError: blocks whose side is no power of two of 16 or more.
    """
    if index.block < 16 or index.block & (index.block - 1):
        raise SoonerError(
            f"kernels take blocks whose side is a power of two of 16 or more, not {index.block}"
        )
    seen = _wide_enough(index.diagonals, max(len(plane.keys) - 1, 0) // index.block + 1)
    order = torch.sort(seen, dim=1, descending=True, stable=True).indices
    columns = _distinct(index.vertical, len(plane.keys))
    edges = torch.arange(seen.shape[1], device=seen.device) * index.block
    before = torch.searchsorted(columns, edges.expand(len(columns), -1).contiguous())
    last = (len(plane.queries) - index.bottom).clamp(min=0)
    return LineLists(
        _flat(order), _flat(seen.cumsum(1)), _flat(seen), _flat(columns), _flat(before),
        _flat(last), seen.shape[1], columns.shape[1],
    )  # fmt: skip


def _wide_enough(diagonals: Tensor, blocks: int) -> Tensor:
    """As int32; what an index says of its last diagonal holds for those behind it."""
    short = max(blocks - diagonals.shape[1], 0)
    return torch.cat([diagonals, diagonals[:, -1:].expand(-1, short)], 1).to(torch.int32)


def _distinct(columns: Tensor, keys: int) -> Tensor:
    """Ascending columns, each once; at least one a row, so that there is memory to point to."""
    columns = torch.nn.functional.pad(columns, (0, 1), value=keys).sort(1).values
    again = torch.zeros_like(columns, dtype=torch.bool)
    again[:, 1:] = columns[:, 1:] == columns[:, :-1]
    return columns.masked_fill(again, keys).sort(1).values.contiguous()


def _flat(values: Tensor) -> Tensor:
    return values.to(torch.int32).contiguous()
