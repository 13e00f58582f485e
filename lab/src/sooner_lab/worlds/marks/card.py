"""The model card of each of the pair: how good it is, how large, how it came about."""

from __future__ import annotations

from pathlib import Path

from .. import cards
from ..recipes import plain
from ..video.architecture import parameters
from ..video.evaluate import load
from . import data, evaluate
from .recipe import MarkRecipe

SEED = 90_023  # training draws from small seeds
CLIPS = 32
FRAMES = (4, 16, 64)


def write(folder: Path, recipe: MarkRecipe, steps: int, seconds: float) -> Path:
    """Measure the checkpoint in `folder` and write `card.json` into it."""
    model, _ = load(folder)
    writer = data.PackedRowWriter()
    figures = {
        "parameters": parameters(model),
        **cards.depth(model, folder),
        "accuracy": {
            "clips": CLIPS,
            **{f"frames_{n}": evaluate.accuracy(model, writer, SEED, CLIPS, n) for n in FRAMES},
        },
    }
    return cards.write(folder, figures, plain(recipe), steps, seconds)
