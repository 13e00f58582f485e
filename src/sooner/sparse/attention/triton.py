"""Sparse attention on GPUs: Triton kernels of our own, chosen by how a plane is permuted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..kernels import boundary
from ..kernels import dense as whole_dense
from ..kernels import grid as whole_grid
from ..kernels import vertical_slash as whole_lines
from ..kernels.common import TileSizes, tiles_for
from ..kernels.indices import line_lists, spacings
from ..pairs import GridIndex, LineIndex
from ..plane import Plane
from .partial import Partial, States

Kernel = Callable[..., None]


class TritonBackend:
    """Runs kernels that load and store through a plane's permutation (MMInference, appendix G).

    A plane without one takes the plain kernels, one whose keys stand where they stood those of the
    Q-boundary, any other those of the 2D-boundary, rows with gaps of padding among them.

    Args:
        tiles: tile sizes; by head dimension and dtype unless given.
    """

    name = "triton"

    def __init__(self, tiles: TileSizes | None = None) -> None:
        self.tiles = tiles

    def dense(self, states: States, plane: Plane, heads: Tensor, into: Partial) -> None:
        """Attends to all causal pairs of the plane."""
        first = torch.zeros(len(heads), dtype=torch.int32, device=heads.device)
        self._dense(states, plane, heads, into, first, 0)

    def lines(
        self, states: States, plane: Plane, index: LineIndex, heads: Tensor, into: Partial
    ) -> None:
        """Windows of keys and vertical lines; last queries that see everything are dense.

        Raises:
            SoonerError: blocks whose side is no power of two of 16 or more.
        """
        if _nothing(plane, heads):
            return
        lists, tiles = line_lists(plane, index), self._tiles(states)
        tiles = replace(tiles, rows=index.block, keys=min(tiles.keys, index.block), warps=4)
        run = _kernel(plane, whole_lines.vertical_slash, boundary.lines)
        with _on(states):
            run(states, plane, lists, index.block, heads, into, tiles)
        bottom = int(index.bottom.max())
        if bottom > 0:
            start = max(len(plane.queries) - bottom, 0)
            self._dense(states, plane, heads, into, lists.last, start)

    def grid(
        self, states: States, plane: Plane, index: GridIndex, heads: Tensor, into: Partial
    ) -> None:
        """Attends to evenly spaced lines."""
        if _nothing(plane, heads):
            return
        run = _kernel(plane, whole_grid.grid, boundary.grid)
        with _on(states):
            run(states, plane, spacings(index), heads, into, self._tiles(states))

    def _dense(
        self, states: States, plane: Plane, heads: Tensor, into: Partial, first: Tensor, start: int
    ) -> None:
        if _nothing(plane, heads):
            return
        run = _kernel(plane, whole_dense.dense, boundary.dense)
        with _on(states):
            run(states, plane, heads, into, first, start, self._tiles(states))

    def _tiles(self, states: States) -> TileSizes:
        return self.tiles or tiles_for(states.queries.shape[-1], states.queries.dtype)


def _on(states: States) -> AbstractContextManager[Any]:
    """Triton launches on the current GPU, which need not be that of the states."""
    device = states.queries.device
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _nothing(plane: Plane, heads: Tensor) -> bool:
    return not (len(plane.queries) and len(plane.keys) and len(heads))


def _kernel(plane: Plane, whole: Kernel, permuted: Kernel) -> Kernel:
    """Returns what runs a plane: the kernel for whole ones, or that of a query or of a
    2D-boundary.
    """
    if plane.is_whole:
        return whole
    stay = int(plane.keys[-1]) == len(plane.keys) - 1
    return partial(permuted, is_pair=not stay)
