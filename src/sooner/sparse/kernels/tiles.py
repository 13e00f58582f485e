"""Tile sizes by head dimension, and how to tune them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class Tiles:
    """How a kernel cuts its work.

    The defaults fit the shared memory of an A100 (163 KiB a block), so also that of an H100 or an
    H200. To tune, time `sooner_lab.bench.prefill.kernels.time_kernels` with other sizes handed to
    `TritonBackend(tiles=...)`: more warps for larger tiles, fewer stages when memory runs out.

    Attributes:
        rows: queries of a tile, a power of two of 16 or more.
        keys: keys of a step, likewise.
        warps: of a tile.
        stages: steps whose loads are under way at once.
    """

    rows: int = 128
    keys: int = 64
    warps: int = 8
    stages: int = 3

    def at_most(self, rows: int) -> Tiles:
        """The same with no more rows than there is work for."""
        fit = max(16, 1 << max(rows - 1, 0).bit_length())
        if fit >= self.rows:
            return self
        return replace(self, rows=fit, warps=min(self.warps, 4))


def tiles_for(head_dim: int, dtype: torch.dtype) -> Tiles:
    """The default of a head dimension."""
    wide = dtype == torch.float32
    if head_dim <= 64:
        return Tiles(64, 32, 4, 2) if wide else Tiles(128, 64, 4, 3)
    if head_dim <= 128:
        return Tiles(64, 32, 8, 2) if wide else Tiles(128, 64, 8, 3)
    return Tiles(32, 16, 4, 2) if wide else Tiles(64, 32, 4, 2)
