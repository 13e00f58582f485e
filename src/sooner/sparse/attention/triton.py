"""Sparse attention on GPUs: Triton kernels of our own, chosen by how a plane is permuted."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...engine.attention.kernel import on_device
from ..kernels.common import dense, tiles_for
from ..kernels.grid import grid
from ..kernels.indices import line_lists, spacings
from ..kernels.vertical_slash import vertical_slash
from ..pairs import GridIndex, Index, LineIndex
from ..plane import Plane
from .partial import Partial, States


class TritonBackend:
    """Runs kernels that load and store through a plane's permutation (MMInference, appendix G).

    Queries are always loaded through their slots, keys where they do not stand at their ranks: in
    2D-boundaries, and in rows with gaps of padding.
    """

    name = "triton"

    def attend(
        self, states: States, plane: Plane, index: Index | None, heads: Tensor, into: Partial
    ) -> None:
        """Attends to the plane's pairs."""
        if not (len(plane.queries) and len(plane.keys) and len(heads)):
            return
        with on_device(states.queries):
            tiles, is_pair = tiles_for(states), _moves_keys(plane)
            if isinstance(index, LineIndex):
                self._lines(states, plane, index, heads, into)
            elif isinstance(index, GridIndex):
                grid(states, plane, spacings(index), heads, into, tiles, is_pair)
            else:
                first = torch.zeros(len(heads), dtype=torch.int32, device=heads.device)
                dense(states, plane, heads, into, first, 0, tiles, is_pair)

    def _lines(
        self, states: States, plane: Plane, index: LineIndex, heads: Tensor, into: Partial
    ) -> None:
        """Windows of keys and vertical lines; last queries that see everything are dense."""
        lists, tiles, is_pair = line_lists(plane, index), tiles_for(states), _moves_keys(plane)
        square = replace(tiles, rows=index.block, keys=min(tiles.keys, index.block), warps=4)
        vertical_slash(states, plane, lists, index.block, heads, into, square, is_pair)
        bottom = int(index.bottom.max())
        if bottom > 0:
            start = max(len(plane.queries) - bottom, 0)
            dense(states, plane, heads, into, lists.last, start, tiles, is_pair)


def _moves_keys(plane: Plane) -> bool:
    """Returns whether keys do not stand at their ranks."""
    return int(plane.keys[-1]) != len(plane.keys) - 1
