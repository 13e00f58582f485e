"""How far a relaxed run strayed from what its target would have said at each place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Deviation:
    """Signed distances, in bins, of accepted draft tokens from what the target chose at that place.

    It is the *local* deviation: the target's choice behind the tokens that were accepted before,
    which under relaxed acceptance need not be the choice of a whole exact run. Every figure is
    derived from one histogram, which stays on the device until it is read.

    Args:
        counts: how often each distance from `-span` to `span` was seen,
            `[rows, dims, 2 * span + 1]`.
    """

    def __init__(self, counts: Tensor) -> None:
        self.counts = counts

    @classmethod
    def zeros(cls, rows: int, dims: int, span: int, device: torch.device | str) -> Deviation:
        """Nothing seen yet; distances are at most `span`."""
        return cls(torch.zeros(rows, dims, 2 * span + 1, dtype=torch.long, device=device))

    @property
    def rows(self) -> int:
        return self.counts.shape[0]

    @property
    def dims(self) -> int:
        return self.counts.shape[1]

    @property
    def span(self) -> int:
        """Largest distance that can be counted."""
        return self.counts.shape[2] // 2

    def add(self, rows: Sequence[int], dims: Tensor, distance: Tensor, seen: Tensor) -> None:
        """Count one round.

        Args:
            rows: original row of each line of the tensors.
            dims: dimension that a token speaks of, `[rows, depth]`.
            distance: signed, in bins, within the span, `[rows, depth]`.
            seen: which of them count, `[rows, depth]` bool.
        """
        original = torch.tensor(list(rows), device=dims.device)[:, None]
        places = (original * self.dims + dims) * self.counts.shape[2] + distance + self.span
        self.counts.view(-1).index_add_(0, places.flatten(), seen.flatten().long())

    def of(self, row: int) -> Deviation:
        """Of one original row alone."""
        return Deviation(self.counts[row : row + 1])

    @property
    def accepted(self) -> np.ndarray:
        """Draft tokens that were accepted, of each dimension, `[dims]`."""
        return self._histogram().sum(-1)

    @property
    def mean(self) -> np.ndarray:
        """Mean absolute distance in bins, `[dims]`; 0 where nothing was accepted."""
        return _mean(self._histogram(), np.abs(self._distances()))

    @property
    def bias(self) -> np.ndarray:
        """Mean signed distance in bins, `[dims]`: above 0 where drafts lie in higher bins."""
        return _mean(self._histogram(), self._distances())

    @property
    def largest(self) -> np.ndarray:
        """Largest absolute distance in bins, `[dims]`."""
        return np.where(self._histogram() > 0, np.abs(self._distances()), 0).max(-1)

    def as_dict(self) -> dict[str, Any]:
        """Lists over the dimensions, ready for JSON; distances in bins."""
        return {
            "accepted": self.accepted.tolist(),
            "mean": self.mean.tolist(),
            "bias": self.bias.tolist(),
            "max": self.largest.tolist(),
        }

    def _histogram(self) -> np.ndarray:
        """Over all rows, `[dims, 2 * span + 1]`."""
        return self.counts.sum(0).cpu().numpy()

    def _distances(self) -> np.ndarray:
        return np.arange(-self.span, self.span + 1)


def _mean(histogram: np.ndarray, values: np.ndarray) -> np.ndarray:
    return (histogram * values).sum(-1) / np.maximum(histogram.sum(-1), 1)
