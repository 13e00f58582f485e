"""Pictures encoded once: training then touches no pixels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.models.janus.modeling_janus import JanusVQVAE

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
    # The codebook's sum stands for the weights: any step of training changes it.
    total = float(model.quantize.embedding.weight.detach().double().sum())
    key = [count, seed, total, repr(look)]
    if cache is not None and cache.exists():
        cached: dict[str, Any] = torch.load(cache, weights_only=True)
        if cached["key"] == key:
            pictures = [world.drawn_picture(index, seed) for index in range(count)]
            return Bank(pictures, cached["codes"].long())
    pictures, made = [], []
    for begin in range(0, count, CHUNK):
        some = [world.drawn(index, seed, look) for index in range(begin, min(begin + CHUNK, count))]
        pictures += [picture for picture, _ in some]
        made.append(codes.encode(model, codes.to_pixels([pixels for _, pixels in some])))
    encoded = torch.cat(made)  # [count, tokens]
    if cache is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"key": key, "codes": encoded.short()}, cache)
    return Bank(pictures, encoded)
