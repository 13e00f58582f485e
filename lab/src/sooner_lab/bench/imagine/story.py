"""One picture that explains the method: each token coloured by the iteration that accepted it.

Needs the model, so the run itself makes it: a still (PNG) and an animation (WebP) of SJD beside
coupled draws on the same prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sooner.drawing import draw
from sooner.methods import CoupledJacobi

from .subjects import Subject

UNKNOWN, DRAFT, ACCEPTED = 0, 1, 2
"""What a place is during an iteration."""


@dataclass(frozen=True)
class DrawingHistory:
    """One drawing, iteration by iteration; places are those of the whole span.

    Attributes:
        name: of the arm.
        window: places drafted ahead.
        accepted: iteration that decided each place, `[length]`; 0 for what the prompt gave.
        tokens: what stands at each place after each iteration, `[iterations + 1, length]`.
        state: `UNKNOWN`, `DRAFT` or `ACCEPTED`, likewise.
    """

    name: str
    window: int
    accepted: np.ndarray
    tokens: np.ndarray
    state: np.ndarray

    @property
    def nfe(self) -> int:
        return len(self.tokens) - 1


def record(subject: Subject, name: str, method: CoupledJacobi, seed: int) -> DrawingHistory:
    """Draw one prompt and keep the state of every iteration."""
    commits: list[int] = []
    drawing = draw(
        subject.canvas,
        subject.prepare([0]),
        method,
        seed=seed,
        on_tokens=lambda row, tokens, drafted: commits.append(len(tokens)),
    )
    assert method.trace is not None
    tokens = drawing.tokens[0].numpy()  # [length]
    accepted = np.zeros(len(tokens), dtype=int)
    accepted[-sum(commits) :] = np.repeat(np.arange(1, len(commits) + 1), commits)
    return unroll(name, method, tokens, accepted, subject.canvas.grid.given)


def unroll(
    name: str, method: CoupledJacobi, tokens: np.ndarray, accepted: np.ndarray, given: int
) -> DrawingHistory:
    """Every iteration's view: what is accepted, what is drafted, and nothing yet behind that."""
    assert method.trace is not None
    iterations = int(accepted.max()) + 1
    known = accepted[None] <= np.arange(iterations)[:, None]  # [iterations, length]
    # Unknown places are not shown, but decoders mix places: there stands what will stand there.
    views = np.repeat(tokens[None], iterations, axis=0)
    state = np.where(known, ACCEPTED, UNKNOWN)
    # A round is traced only where something was drawn again; its window tells which one it was.
    after = {int(said): iteration for iteration, said in enumerate(known.sum(1) - given)}
    for one in method.trace.rounds:
        drafted, iteration = one.drafted[0].numpy(), after[int(one.places[0, 0])]
        places = one.places[0].numpy()[drafted] + given
        views[iteration, places] = one.new[0].numpy()[drafted]
        state[iteration, places] = DRAFT
    return DrawingHistory(name, method.jacobi_window, accepted, views, state)


def board(subject: Subject, values: np.ndarray) -> np.ndarray:
    """Values of the code places of whole spans, `[n, length]`, as latent frames side by side.

    Returns:
        `[n, height, frames * width]`.
    """
    grid = subject.canvas.grid
    codes = values[:, grid.code_places().numpy()]
    laid = codes.reshape(-1, grid.frames, grid.height, grid.width)
    return laid.transpose(0, 2, 1, 3).reshape(len(values), grid.height, -1)


@torch.no_grad()
def pictures(subject: Subject, tokens: np.ndarray, batch: int = 16) -> np.ndarray:
    """Decoded whole spans, one pixel frame for each latent frame side by side.

    Returns:
        `[n, height, frames * width, 3]`, 0 to 1.
    """
    found: list[Tensor] = []
    latents = subject.canvas.grid.frames
    for some in torch.from_numpy(tokens).split(batch):
        pixels = subject.canvas.pixels(some).cpu()  # [n, frames, h, w, 3]
        last = _last_frames(pixels.shape[1], latents)
        laid = pixels[:, last].permute(0, 2, 1, 3, 4)  # [n, h, latents, w, 3]
        found.append(laid.flatten(2, 3))
    return torch.cat(found).numpy()


def _last_frames(frames: int, latents: int) -> Sequence[int]:
    """The last pixel frame of each latent frame: the first stands alone, then equal groups."""
    group = (frames - 1) // max(latents - 1, 1)
    return [latent * group for latent in range(latents)]
