"""Pictures of what is drawn so far, seldom enough to cost next to nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from ...models import Canvas
from .sketch import Sketch

GREY = 128


class Budget:
    """Lets something be done now and then, so that it takes no more than a share of the time.

    Args:
        share: of the time, from 0 to 1.
        wait: seconds before the first time; what is over sooner needs none.
    """

    def __init__(self, share: float, wait: float = 0.0) -> None:
        self.share = share
        self._next = time.perf_counter() + wait

    @property
    def due(self) -> bool:
        return time.perf_counter() >= self._next

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Whatever the block takes is paid for by waiting."""
        start = time.perf_counter()
        yield
        now = time.perf_counter()
        self._next = now + (now - start) * (1 / self.share - 1)


@torch.inference_mode()
def partial(canvas: Canvas, sketch: Sketch) -> np.ndarray:
    """Decode unfinished pictures, grey where nothing is drawn yet.

    Returns:
        uint8 `[rows, frames, height, width, 3]`; of a clip, the frames that are begun.
    """
    spans, drawn = sketch.spans()
    pixels = to_uint8(canvas.pixels(spans))
    frames, height, width = pixels.shape[1:4]
    last = int(drawn.any(0).flatten(1).any(1).sum()) - 1  # the newest latent frame
    shown = 1 + max(last, 0) * ((frames - 1) // max(drawn.shape[1] - 1, 1))
    mask = drawn.repeat_interleave(height // drawn.shape[2], 2)
    mask = mask.repeat_interleave(width // drawn.shape[3], 3)  # [rows, latents, height, width]
    latents = _latent_of_frames(frames, drawn.shape[1])
    pixels[~mask[:, latents].numpy()] = GREY
    return pixels[:, :shown]


def _latent_of_frames(frames: int, latents: int) -> Tensor:
    """Latent frame of each frame: the first alone, then groups."""
    if latents == 1:
        return torch.zeros(frames, dtype=torch.long)
    group = (frames - 1) // (latents - 1)
    return (torch.arange(frames) + group - 1) // group


def to_uint8(pixels: Tensor) -> np.ndarray:
    """0 to 1 in floats to 0 to 255, rounded."""
    return pixels.mul(255).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
