"""Vertical lines and diagonals of blocks: A-shape, tri-shape and vertical-slash heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..plane import Plane
from .base import Places, causal

if TYPE_CHECKING:
    from ..attention.backend import Backend
    from ..attention.partial import Partial, States


@dataclass(frozen=True, eq=False)
class LineIndex:
    """Keys seen by everybody, and diagonals seen in whole blocks.

    A slash line runs through blocks of `block x block` pairs, and a kernel that computes a block
    computes all of it. So diagonals are those of blocks, by definition and on every backend:
    query and key see each other if `frontier // block - rank // block` is one of `diagonals`.

    Attributes:
        vertical: ranks of keys that every later query sees, ascending, padded at the end with the
            number of keys, `[heads, lines]`.
        diagonals: which diagonals of blocks are seen, `[heads, blocks]` bool. The first, that of
            each query's own block, always is.
        bottom: how many of the plane's last queries see everything, `[heads]`.
        block: side of a block.
    """

    vertical: Tensor
    diagonals: Tensor
    bottom: Tensor
    block: int = 64

    @property
    def heads(self) -> int:
        return self.vertical.shape[0]

    def seen(self, head: int, plane: Plane, queries: Places = slice(None)) -> Tensor:
        frontier, rank, allowed = causal(plane, queries)
        keys = len(plane.keys)
        blocks = torch.arange(0, keys, self.block, device=rank.device) // self.block
        apart = (frontier // self.block - blocks).clamp(0, self.diagonals.shape[1] - 1)
        seen = self.diagonals[head][apart].repeat_interleave(self.block, 1)[:, :keys]
        seen |= self.columns(head, keys)
        place = torch.arange(len(plane.queries), device=rank.device)[queries, None]
        seen |= place >= len(plane.queries) - self.bottom[head]
        return seen & allowed

    def columns(self, head: int, keys: int) -> Tensor:
        """Which keys lie on a vertical line of `head`, `[keys]` bool."""
        seen = torch.zeros(keys + 1, dtype=torch.bool, device=self.vertical.device)
        seen[self.vertical[head]] = True
        return seen[:-1]

    def run(
        self, backend: Backend, states: States, plane: Plane, heads: Tensor, into: Partial
    ) -> None:
        backend.lines(states, plane, self, heads, into)

    def take(self, heads: Tensor) -> LineIndex:
        return LineIndex(
            self.vertical[heads], self.diagonals[heads], self.bottom[heads], self.block
        )

    @classmethod
    def build(
        cls,
        plane: Plane,
        vertical: list[Tensor],
        slash: list[Tensor],
        bottom: list[int],
        block: int = 64,
    ) -> LineIndex:
        """From each head's lines.

        Args:
            vertical: ranks, each `[lines]`, in any order.
            slash: distances `frontier - rank` of slash lines, each `[lines]`.
            bottom: last queries that see everything.
        """
        keys, device = len(plane.keys), plane.keys.device
        blocks = keys // block + 1
        width = max((len(lines) for lines in vertical), default=0)
        columns = torch.full((len(vertical), width), keys, device=device)
        diagonals = torch.zeros(len(slash), blocks, dtype=torch.bool, device=device)
        diagonals[:, 0] = True
        for head, (ranks, apart) in enumerate(zip(vertical, slash, strict=True)):
            columns[head, : len(ranks)] = ranks.to(device).sort().values
            apart = apart.to(device)
            low, high = apart // block, (apart + block - 1) // block  # both blocks it runs through
            diagonals[head, torch.cat([low, high]).clamp(max=blocks - 1)] = True
        return cls(columns, diagonals, torch.tensor(bottom, device=device), block)
