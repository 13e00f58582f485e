"""Codes committed so far, round by round."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...engine.grid import CODE, TokenGrid

OnProgress = Callable[["DrawingProgress"], None]

"""Called with the progress after every round."""


class DrawingProgress:
    """Collects codes as they are committed, as the `on_tokens` of a run.

    Args:
        grid: of what is drawn.
        prefix: codes that the prompt holds already, `[grid.prefix]`.
        count: pictures.
        on_progress: told after every round; its time is kept apart in `watched`.

    Attributes:
        output: ids generated for each picture.
        steps: rounds so far, each of them one target forward.
        watched: seconds that `on_progress` took.
    """

    def __init__(
        self, grid: TokenGrid, prefix: list[int], count: int, on_progress: OnProgress | None = None
    ) -> None:
        self.grid, self.prefix = grid, prefix
        self.output: list[list[int]] = [[] for _ in range(count)]
        self.steps = 0
        self.watched = 0.0
        self._on_progress = on_progress
        self._last = count  # within a round, rows come in ascending order

    def add(self, row: int, tokens: list[int], drafted: int) -> None:
        """Take new ids of picture `row`."""
        if row <= self._last:
            self._tell()
            self.steps += 1
        self._last = row
        self.output[row] += tokens

    def close(self) -> None:
        """Report the last round."""
        self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None and self.steps:
            start = time.perf_counter()
            self._on_progress(self)
            self.watched += time.perf_counter() - start

    @property
    def tokens(self) -> int:
        """Returns the new codes of all pictures."""
        return sum(map(len, self.output))

    @property
    def total(self) -> int:
        """Returns the new codes of all finished pictures."""
        return self.grid.left * len(self.output)

    @property
    def finished(self) -> list[bool]:
        """Which pictures are whole."""
        return [len(tokens) == self.grid.left for tokens in self.output]

    def codes(self, row: int) -> int:
        """Returns how many codes of a picture there are, those of the prompt among them."""
        known = len(self.prefix) + len(self.output[row])
        return int((self.grid.kinds()[:known] == CODE).sum())

    def whole(self) -> Tensor:
        """Returns the ids of the finished pictures, `[finished, grid.length]`."""
        rows = [row for row, done in zip(self.output, self.finished, strict=True) if done]
        ids = torch.tensor([self.prefix + row for row in rows], dtype=torch.long)
        return ids.view(-1, self.grid.length)


def to_uint8(pixels: Tensor) -> np.ndarray:
    """Converts 0 to 1 in floats to 0 to 255, rounded."""
    return pixels.mul(255).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
