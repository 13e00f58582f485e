"""The lists that the kernel follows, made from an index on its device, without asking the host."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ....errors import SoonerError
from ...pairs import LineIndex
from ...plane import Plane


class LineLists(NamedTuple):
    """A `LineIndex` as a kernel reads it; all are contiguous, and int32 but for `covered`.

    Attributes:
        windows: by how many ranks the first key of each window lies before a block, the nearest
            window first, `[heads, most]`; behind them anything.
        reach: how many of them a query of each block has a key in, `[heads, blocks]`.
        covered: 1 where a key before a block lies in a window, `[heads, keys]` int8.
        columns: vertical lines, ascending, `[heads, lines]`; behind them the number of keys.
        before: how many lie in blocks before each block, `[heads, blocks]`.
        last: place of the first query that sees everything, `[heads]`; not the lists' affair.
        most, blocks, keys, lines: rows' lengths.
    """

    windows: Tensor
    reach: Tensor
    covered: Tensor
    columns: Tensor
    before: Tensor
    last: Tensor
    most: int
    blocks: int
    keys: int
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
    keys, heads = len(plane.keys), index.heads
    blocks = max(keys - 1, 0) // index.block + 1
    edges = torch.arange(blocks, device=index.covered.device) * index.block
    each = edges.expand(heads, -1).contiguous()
    windows = _windows(index.covered, index.block)
    nearest = (windows - index.block + 1).clamp(min=1)
    reach = torch.searchsorted(nearest, each, right=True)
    columns = _distinct(index.vertical, keys)
    before = torch.searchsorted(columns, each)
    last = (len(plane.queries) - index.bottom).clamp(min=0)
    return LineLists(
        _flat(windows), _flat(reach), index.covered.to(torch.int8).contiguous(), _flat(columns),
        _flat(before), _flat(last), windows.shape[1], blocks, index.covered.shape[1],
        columns.shape[1],
    )  # fmt: skip


def _windows(covered: Tensor, block: int) -> Tensor:
    """The windows that cover those keys, `[heads, most]`; see `LineLists`.

    A run of covered keys holds whole windows, counted from its far end; only the nearest may be
    cut, by the block that it lies before. So there are no more than fit between the keys.
    """
    heads, keys = covered.shape
    most = keys // block + 2
    apart = torch.arange(1, keys + 1, device=covered.device).expand(heads, -1)
    beyond = torch.nn.functional.pad(covered, (0, 1))[:, 1:]
    far_end = apart.masked_fill(~covered | beyond, keys + 1)  # of the run that ends here
    far_end = far_end.flip(1).cummin(1).values.flip(1) if keys else far_end
    is_first = covered & ((far_end - apart) % block == 0)
    place = torch.where(is_first, is_first.cumsum(1) - 1, most)
    none = torch.full((heads, most + 1), keys + block, dtype=apart.dtype, device=covered.device)
    return none.scatter(1, place, apart)[:, :most].contiguous()


def _distinct(columns: Tensor, keys: int) -> Tensor:
    """Ascending columns, each once; at least one a row, so that there is memory to point to."""
    columns = torch.nn.functional.pad(columns, (0, 1), value=keys).sort(1).values
    again = torch.zeros_like(columns, dtype=torch.bool)
    again[:, 1:] = columns[:, 1:] == columns[:, :-1]
    return columns.masked_fill(again, keys).sort(1).values.contiguous()


def _flat(values: Tensor) -> Tensor:
    return values.to(torch.int32).contiguous()
