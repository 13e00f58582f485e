"""How far a relaxed run strayed from what its target would have said at each place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Deviation:
    """Holds signed distances, in bins, of accepted draft tokens from what the target chose there.

    It is the *local* deviation: the target's choice behind the tokens that were accepted before,
    which under relaxed acceptance need not be the choice of a whole exact run. Every figure is
    derived from one histogram, which stays on the device until it is read.

    Args:
        counts: how often each distance from `-span` to `span` was seen,
            `[rows, dims, 2 * span + 1]`.
        limit: tokens that each row may generate; those accepted beyond them don't count.
    """

    def __init__(self, counts: Tensor, limit: int = 0) -> None:
        self.counts = counts
        self._lines = list(range(len(counts)))  # of original rows; -1 once they have left
        self._limits = [limit] * len(counts)
        self._free: list[int] = []  # lines of rows that have left
        self._left = torch.zeros_like(counts[0]) if len(counts) else counts.sum(0)

    @classmethod
    def zeros(
        cls, rows: int, dims: int, span: int, device: torch.device | str, limit: int = 0
    ) -> Deviation:
        """Nothing seen yet; distances are at most `span`."""
        counts = torch.zeros(rows, dims, 2 * span + 1, dtype=torch.long, device=device)
        return cls(counts, limit)

    @torch.inference_mode()
    def merge(self, other: Deviation) -> None:
        """Count for the original rows of `other`, too, numbered behind these."""
        for line, limit in zip(other._lines, other._limits, strict=True):
            if not self._free:  # as many lines again, so that joining stays cheap
                self._free = [*range(self.rows, 2 * self.rows)][::-1]
                self.counts = torch.cat([self.counts, torch.zeros_like(self.counts)])
            self._lines.append(self._free.pop())
            self._limits.append(limit)
            self.counts[self._lines[-1]] = other.counts[line].to(self.counts.device)

    @torch.inference_mode()
    def release(self, row: int, earlier: Sequence[Deviation] = ()) -> Deviation:
        """That of an original row that has left, and `earlier` ones of it; the sum over all keeps
        it."""
        record, line = Deviation(self.of(row).counts.clone()), self._lines[row]
        self._left += record.counts[0]
        for part in earlier:
            record.counts += part.counts
        self.counts[line] = 0
        self._free.append(line)
        self._lines[row] = -1
        return record

    def room(self, row: int, generated: int) -> int:
        """Returns how many tokens original row `row` may generate after `generated` ones."""
        return max(self._limits[row] - generated, 0)

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
        lines = torch.tensor([self._lines[row] for row in rows], device=dims.device)[:, None]
        places = (lines * self.dims + dims) * self.counts.shape[2] + distance + self.span
        self.counts.view(-1).index_add_(0, places.flatten(), seen.flatten().long())

    def of(self, row: int) -> Deviation:
        """Returns the deviation of one original row alone."""
        line = self._lines[row]
        return Deviation(self.counts[line : line + 1])

    @property
    def accepted(self) -> np.ndarray:
        """Draft tokens that were accepted, of each dimension, `[dims]`."""
        accepted: np.ndarray = self._histogram().sum(-1)
        return accepted

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
        """Returns the largest absolute distance in bins, `[dims]`."""
        distances = np.where(self._histogram() > 0, np.abs(self._distances()), 0)
        largest: np.ndarray = distances.max(-1)
        return largest

    def as_dict(self) -> dict[str, Any]:
        """Returns lists over the dimensions, ready for JSON; distances in bins."""
        return {
            "accepted": self.accepted.tolist(),
            "mean": self.mean.tolist(),
            "bias": self.bias.tolist(),
            "max": self.largest.tolist(),
        }

    def _histogram(self) -> np.ndarray:
        """Over all rows, `[dims, 2 * span + 1]`."""
        return (self.counts.sum(0) + self._left).cpu().numpy()

    def _distances(self) -> np.ndarray:
        return np.arange(-self.span, self.span + 1)


def _mean(histogram: np.ndarray, values: np.ndarray) -> np.ndarray:
    mean: np.ndarray = (histogram * values).sum(-1) / np.maximum(histogram.sum(-1), 1)
    return mean
