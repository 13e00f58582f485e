"""Codes committed so far, round by round, and their partial decoding to pixels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from ...engine.grid import CODE, ROW_END, TokenGrid
from ...models import Canvas

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
        said: ids generated for each picture.
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

    def spans(self) -> tuple[Tensor, Tensor]:
        """Returns whole spans that can be decoded at any moment, and which of their codes are
        drawn.

        Places that are not drawn yet repeat what is: codes of the picture itself keep a decoder's
        norms as they are, so that what is there looks as it will.

        Returns:
            ids `[rows, grid.length]` and bool `[rows, frames, height, width]`.
        """
        kinds, grid = self.grid.kinds(), self.grid
        places = grid.code_places()
        spans = torch.empty(len(self.output), grid.length, dtype=torch.long)
        drawn = torch.zeros(len(self.output), len(places), dtype=torch.bool)
        if grid.row_end is not None:
            spans[:, kinds == ROW_END] = grid.row_end
        for index, token in enumerate(grid.tail):
            spans[:, kinds == 2 + index] = token
        for row, tokens in enumerate(self.output):
            known = torch.tensor((self.prefix + tokens)[: grid.length], dtype=torch.long)
            codes = known[kinds[: len(known)] == CODE]
            drawn[row, : len(codes)] = True
            if not len(codes):
                codes = torch.tensor([grid.codes[0]])
            spans[row, places] = codes[torch.arange(len(places)) % len(codes)]
        return spans, drawn.view(-1, grid.frames, grid.height, grid.width)


GREY = 128


class TimeShare:
    """Rate limit for a recurring action, so that it takes at most a share of the wall time.

    Args:
        share: of the time, from 0 to 1.
        wait: seconds before the first time, so that short runs have none.
    """

    def __init__(self, share: float, wait: float = 0.0) -> None:
        self.share = share
        self._next = time.perf_counter() + wait

    @property
    def due(self) -> bool:
        return time.perf_counter() >= self._next

    @contextmanager
    def spend(self) -> Iterator[None]:
        """The block's duration postpones the next time that `due` is true."""
        start = time.perf_counter()
        yield
        now = time.perf_counter()
        self._next = now + (now - start) * (1 / self.share - 1)


@torch.inference_mode()
def partial(canvas: Canvas, progress: DrawingProgress) -> np.ndarray:
    """Decode unfinished pictures, grey where nothing is drawn yet.

    Returns:
        uint8 `[rows, frames, height, width, 3]`; of a clip, the frames that are begun.
    """
    spans, drawn = progress.spans()
    pixels = to_uint8(canvas.pixels(spans))
    frames, height, width = pixels.shape[1:4]
    last = int(drawn.any(0).flatten(1).any(1).sum()) - 1  # the newest latent frame
    count = 1 + max(last, 0) * ((frames - 1) // max(drawn.shape[1] - 1, 1))
    mask = drawn.repeat_interleave(height // drawn.shape[2], 2)
    mask = mask.repeat_interleave(width // drawn.shape[3], 3)  # [rows, latents, height, width]
    latents = _latent_of_frames(frames, drawn.shape[1])
    pixels[~mask[:, latents].numpy()] = GREY
    return pixels[:, :count]


def _latent_of_frames(frames: int, latents: int) -> Tensor:
    """Returns latent frame of each frame: the first alone, then groups."""
    if latents == 1:
        return torch.zeros(frames, dtype=torch.long)
    group = (frames - 1) // (latents - 1)
    return (torch.arange(frames) + group - 1) // group


def to_uint8(pixels: Tensor) -> np.ndarray:
    """Converts 0 to 1 in floats to 0 to 255, rounded."""
    return pixels.mul(255).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
