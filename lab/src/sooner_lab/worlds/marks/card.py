"""The model card of each of the pair: how good it is, how large, how it came about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import cards
from ..recipes import plain
from ..video.architecture import parameters
from ..video.evaluate import load
from . import data, world
from .recipe import MarkRecipe

SEED = 90_023  # training draws from small seeds
CLIPS = 32
FRAMES = (4, 16, 64)


@torch.no_grad()
def accuracy(
    model: Any, writer: data.PackedRowWriter, seed: int, count: int, frames: int
) -> dict[str, float]:
    """Held-out accuracy of answers' tokens, each behind the right tokens before it.

    Returns:
        "text" of tokens that don't need the pixels, "seen" of those that do, "guessed" of these
        behind a prefix without a video. All 0..1.
    """
    from .learn import ask, look

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


def write(folder: Path, recipe: MarkRecipe, steps: int, seconds: float) -> Path:
    """Measure the checkpoint in `folder` and write `card.json` into it."""
    model, _ = load(folder)
    writer = data.PackedRowWriter()
    figures = {
        "parameters": parameters(model),
        **cards.depth(model, folder),
        "accuracy": {
            "clips": CLIPS,
            **{f"frames_{n}": accuracy(model, writer, SEED, CLIPS, n) for n in FRAMES},
        },
    }
    return cards.write(folder, figures, plain(recipe), steps, seconds)
