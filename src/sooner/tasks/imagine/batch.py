"""Decoding of one batch with progress callbacks; Ctrl-C keeps the codes decoded by then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from ...drawing import Drawing, draw
from ...methods import Method
from ...models import Canvas
from .progress import DrawingProgress, OnProgress
from .settings import ImagineSettings

WARM_UP = 3
"""Decoding rounds of an untimed run."""


@dataclass(frozen=True)
class DrawCallbacks:
    """Functions called while a batch is drawn; each may be left out.

    Attributes:
        on_decode: `(frames decoded, frames to decode)` of a clip.
        on_stage: the stage that begins: `process`, `warm-up`, `draw`, `pixels`, `compare`.
        on_canvas: the canvas, before anything is drawn on it.
        on_progress: what is drawn so far, after every round.
    """

    on_decode: Callable[[int, int], None] | None = None
    on_stage: Callable[[str], None] | None = None
    on_canvas: Callable[[Canvas], None] | None = None
    on_progress: OnProgress | None = None

    def stage(self, name: str) -> None:
        if self.on_stage is not None:
            self.on_stage(name)


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

    @property
    def prefix(self) -> list[int]:
        """Codes that the prompt holds already."""
        ids: list[int] = self.inputs["input_ids"][0].tolist()
        return ids[len(ids) - self.canvas.grid.prefix :]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while drawing; `progress` holds the codes decoded by then."""

    def __init__(self, progress: DrawingProgress) -> None:
        super().__init__()
        self.progress = progress


def draw_batch(
    work: DrawJob, method: Method, on_progress: OnProgress | None = None
) -> tuple[Drawing, DrawingProgress]:
    """Draw the batch.

    Raises:
        Interrupted: Ctrl-C; it holds the codes decoded by then.
        SoonerError: as `sooner.draw`.
    """
    progress = DrawingProgress(work.canvas.grid, work.prefix, work.settings.count, on_progress)
    try:
        drawing = _draw(work, method, progress.add)
        progress.close()
    except KeyboardInterrupt as stop:
        raise Interrupted(progress) from stop
    # Time spent in callbacks is not the run's.
    drawing.stats.seconds["other"] -= min(progress.watched, drawing.stats.seconds["other"])
    return drawing, progress


class _EnoughError(Exception):
    """Ends a warm-up."""


def warm_up(work: DrawJob, *methods: Method) -> None:
    """Runs a few rounds of each method: first forwards pay for allocations and kernel choices."""
    for method in methods:
        progress = DrawingProgress(work.canvas.grid, work.prefix, work.settings.count, _leave)
        with suppress(_EnoughError):
            _draw(work, method, progress.add)


def _leave(progress: DrawingProgress) -> None:
    if progress.steps > WARM_UP:
        raise _EnoughError


def _draw(
    work: DrawJob, method: Method, on_tokens: Callable[[int, list[int], int], None]
) -> Drawing:
    return draw(
        work.canvas,
        work.inputs,
        method,
        count=work.settings.count,
        seed=work.seed,
        on_tokens=on_tokens,
        **work.settings.sampling_options(),
    )


def fresh_seed() -> int:
    """Returns a fresh random seed, whatever this process's generators were seeded with."""
    return int(torch.Generator().seed() % (1 << 31))
