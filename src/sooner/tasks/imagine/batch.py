"""Draws one batch, and collects its codes round by round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...drawing import Drawing, draw
from ...engine.grid import CODE, TokenGrid
from ...methods import Method
from ...models import Canvas
from .settings import ImagineSettings

WARM_UP = 3
"""Decoding rounds of an untimed run."""

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
        self, grid: TokenGrid, prefix: list[int], count: int, on_progress: OnProgress
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
            self.report()
            self.steps += 1
        self._last = row
        self.output[row] += tokens

    def report(self) -> None:
        """Reports the rounds so far."""
        if self.steps:
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


@dataclass(frozen=True)
class DrawCallbacks:
    """Functions called while a batch is drawn; each may be left out.

    Attributes:
        on_decode: `(frames decoded, frames to decode)` of a clip.
        on_stage: the stage that begins: `process`, `warm-up`, `draw`, `pixels`, `compare`.
        on_canvas: the canvas, before anything is drawn on it.
        on_progress: what is drawn so far, after every round.
    """

    on_decode: Callable[[int, int], None] = lambda done, total: None
    on_stage: Callable[[str], None] = lambda name: None
    on_canvas: Callable[[Canvas], None] = lambda canvas: None
    on_progress: OnProgress = lambda progress: None


@dataclass(frozen=True)
class DrawJob:
    """One batch that is to be drawn.

    Attributes:
        canvas: adapter of the model, with the layout of codes.
        inputs: the processed prompt, or the codes of a clip's beginning.
        settings: method, sampling and count.
        seed: of the random numbers.
    """

    canvas: Canvas
    inputs: Mapping[str, Any]
    settings: ImagineSettings
    seed: int

    def progress(self, on_progress: OnProgress = lambda progress: None) -> DrawingProgress:
        """Returns the progress of a run that has not begun."""
        ids: list[int] = self.inputs["input_ids"][0].tolist()
        prefix = ids[len(ids) - self.canvas.grid.prefix :]
        return DrawingProgress(self.canvas.grid, prefix, self.settings.count, on_progress)


def draw_batch(work: DrawJob, method: Method, progress: DrawingProgress) -> Drawing:
    """Returns the drawn batch; `progress` holds what is decoded by then when Ctrl-C ends it.

    Raises:
        SoonerError: as `sooner.draw`.
    """
    drawing = draw(
        work.canvas,
        work.inputs,
        method,
        count=work.settings.count,
        seed=work.seed,
        on_tokens=progress.add,
        **work.settings.sampling_options(),
    )
    progress.report()
    # Time spent in callbacks is not the run's.
    drawing.stats.seconds["other"] -= min(progress.watched, drawing.stats.seconds["other"])
    return drawing


class _EnoughError(Exception):
    """Ends a warm-up."""


def warm_up(work: DrawJob, *methods: Method) -> None:
    """Runs a few rounds of each method: first forwards pay for allocations and kernel choices."""
    for method in methods:
        with suppress(_EnoughError):
            draw_batch(work, method, work.progress(_leave))


def _leave(progress: DrawingProgress) -> None:
    if progress.steps > WARM_UP:
        raise _EnoughError
