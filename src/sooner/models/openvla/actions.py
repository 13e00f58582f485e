"""Actions as tokens: 256 edges over [-1, 1], their 255 centres, the last ids of the vocabulary.

The arithmetic is that of OpenVLA (Kim et al. 2024, section 3.2): an edge is found by the number of
edges at or below the value, the id is the vocabulary's size less that number, and an id that is no
action is clipped to the nearest centre when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .config import OpenVLAConfig


@dataclass(frozen=True)
class ActionTokens:
    """Between normalised actions in [-1, 1], bins and token ids.

    A *bin* is `0 .. edges - 1`; ids fall as values rise: bin `b` has id `vocab_size - 1 - b`.

    Args:
        vocab_size: ids without padding (`OpenVLAConfig.action_vocab_size`).
        edges: of the uniform grid; neighbouring ones have a centre between them.
    """

    vocab_size: int
    edges: int = 256

    @classmethod
    def of(cls, config: OpenVLAConfig) -> ActionTokens:
        return cls(config.action_vocab_size, config.n_action_bins)

    @cached_property
    def centers(self) -> np.ndarray:
        """`[edges - 1]`, float64."""
        grid = np.linspace(-1, 1, self.edges)
        return (grid[:-1] + grid[1:]) / 2

    @property
    def width(self) -> float:
        """Distance of two neighbouring centres."""
        return 2 / (self.edges - 1)

    @property
    def first_id(self) -> int:
        """Smallest id that is an action."""
        return self.vocab_size - self.edges

    def encode(self, actions: np.ndarray) -> np.ndarray:
        """Normalised values of any shape, clipped to [-1, 1], to ids of that shape."""
        grid = np.linspace(-1, 1, self.edges)
        return self.vocab_size - np.digitize(np.clip(actions, -1, 1), grid)

    def decode(self, ids: np.ndarray) -> np.ndarray:
        """Ids of any shape to bin centres; an id that is no action to the nearest end."""
        return self.centers[np.clip(self.vocab_size - np.asarray(ids) - 1, 0, self.edges - 2)]

    def bins(self, ids: Tensor) -> Tensor:
        """Bins of ids, of any shape; -1 for an id that is no action."""
        bins = self.vocab_size - 1 - ids
        inside = (bins >= 0) & (bins < self.edges)
        return torch.where(inside, bins, -1)
