"""What is drawn: a model that draws, and numbered prompts for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sooner.models import Canvas

from .settings import ImagineBenchSettings


@dataclass(frozen=True)
class Subject:
    """One kind of drawing.

    Attributes:
        kind: `image` or `video`.
        name: of the checkpoint.
        canvas: the adapter that draws.
        prepare: processed inputs of the prompts with the given numbers, one row each.
    """

    kind: str
    name: str
    canvas: Canvas
    prepare: Callable[[Sequence[int]], dict[str, Any]]

    @property
    def new(self) -> int:
        """Tokens that one drawing generates."""
        return self.canvas.grid.left


def load(kind: str, settings: ImagineBenchSettings) -> Subject:
    """The miniature of that kind, or a real checkpoint, with the miniature's held-out prompts."""
    from sooner.tasks.imagine.loading import load_drawing_model

    model = settings.image if kind == "image" else settings.video
    drawing_model = load_drawing_model(
        model,
        "image" if kind == "image" else "video",
        device=settings.device,
        dtype=settings.dtype,
        threads=settings.threads,
    )
    make = _pictures if kind == "image" else _clips
    return make(drawing_model, settings.samples, settings.seed)


def _pictures(drawing_model: Any, count: int, seed: int) -> Subject:
    """Captions that training never saw."""
    from ...worlds.image import world

    captions = world.prompts(count, seed)

    def prepare(numbers: Sequence[int]) -> dict[str, Any]:
        return drawing_model.prompt_inputs([captions[number] for number in numbers])

    return Subject("image", drawing_model.name, drawing_model.canvas(), prepare)


def _clips(drawing_model: Any, count: int, seed: int) -> Subject:
    """The first frames of clips that training never saw."""
    from ...worlds.motion import world

    prefix = drawing_model.video_tokenizer.prefix_frames
    films = [world.film(seed, number, range(prefix)) for number in range(count)]

    def prepare(numbers: Sequence[int]) -> dict[str, Any]:
        frames = torch.stack([torch.from_numpy(films[number][1]) for number in numbers])
        return drawing_model.clip_inputs(frames)

    return Subject("video", drawing_model.name, drawing_model.canvas(), prepare)
