"""Pictures encoded once: training then touches no pixels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.models.janus.modeling_janus import JanusVQVAE

from ..training import cached
from . import codes, world

CHUNK = 64


@dataclass(frozen=True)
class Bank:
    """Pictures `0 .. count - 1` of the world `seed`, and their codes `[count, tokens]`."""

    pictures: list[world.Picture]
    codes: torch.Tensor


def encode(
    model: JanusVQVAE,
    count: int,
    seed: int,
    cache: Path | None = None,
    look: world.Look = world.CALM,
) -> Bank:
    """Draw and encode `count` pictures.

    Args:
        model: the autoencoder.
        count: pictures.
        seed: of the world.
        cache: file to keep the codes in; one made by other codes or of another world is
            made again.
        look: how the pictures are drawn.
    """
    pictures = [world.drawn_picture(index, seed) for index in range(count)]

    def make() -> torch.Tensor:
        made = []
        for begin in range(0, count, CHUNK):
            some = range(begin, min(begin + CHUNK, count))
            pixels = codes.to_pixels([world.drawn(index, seed, look)[1] for index in some])
            made.append(codes.encode(model, pixels))
        return torch.cat(made).short()  # [count, tokens]

    if cache is None:
        return Bank(pictures, make().long())
    # The codebook's sum stands for the weights: any step of training changes it.
    total = float(model.quantize.embedding.weight.detach().double().sum())
    return Bank(pictures, cached(cache, [count, seed, total, repr(look)], make).long())
