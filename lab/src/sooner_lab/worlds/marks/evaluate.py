"""What a model sees in clips and says about them, and how often that is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import cards
from ..video.data import normalise
from ..video.losses import name_tokens, see
from . import data, draw, losses, world


def look(model: Any, clips: list[world.MarkClip]) -> tuple[Tensor, Tensor, Tensor]:
    """Render clips of equal length and let the tower see them.

    Returns:
        tokens [clips * frames, 64, width], their labels [clips * frames, 64, 5], and the tokens by
        clip [clips, frames * 64, width].
    """
    pixels = torch.from_numpy(np.concatenate([draw.render(clip) for clip in clips]))
    tokens = see(model, normalise(pixels.permute(0, 3, 1, 2).float() / 255))
    labels = torch.from_numpy(np.concatenate([draw.labels(clip) for clip in clips]))
    return tokens, labels, tokens.unflatten(0, (len(clips), -1)).flatten(1, 2)


def name(head: nn.Linear, tokens: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """The auxiliary loss, see `worlds.video.losses.name_tokens`."""
    return name_tokens(head, tokens, labels, draw.LABELS, ("row", "column"))


def ask(
    model: Any,
    writer: data.PackedRowWriter,
    rows: data.PackedRows,
    features: Tensor,
    slots: np.ndarray,
    bf16: bool = False,
) -> losses.Verdicts:
    """Predict all answers of clips whose frames stand at `slots` of a long one."""
    positions, first = data.prefix_positions(len(writer.head), slots)
    return losses.predict(model, rows, writer.head, features, positions, first, bf16)


@torch.no_grad()
def accuracy(
    model: Any, writer: data.PackedRowWriter, seed: int, count: int, frames: int
) -> dict[str, float]:
    """Held-out accuracy of answers' tokens, each behind the right tokens before it.

    Returns:
        "text" of tokens that don't need the pixels, "seen" of those that do, "guessed" of these
        behind a prefix without a video. All 0..1.
    """
    was = model.training
    model.eval()
    rng = np.random.default_rng([seed, frames])
    found: dict[str, list[float]] = {"text": [], "seen": [], "guessed": []}
    slots = np.arange(frames) * (world.FRAMES // frames)
    for _ in range(count):
        clips = [world.sample_clip(rng, frames)]
        rows, features = writer.write(rng, clips), look(model, clips)[2]
        told = ask(model, writer, rows, features, slots)
        found["text"].append(float(told.right[~told.need].float().mean()))
        found["seen"].append(float(told.right[told.need].float().mean()))
        blind = ask(model, writer, rows, features[:, :0], slots[:0])
        found["guessed"].append(float(blind.right[blind.need].float().mean()))
    model.train(was)
    return cards.rounded({name: float(np.mean(one)) for name, one in found.items()})
