"""Miniatures without their silent layers, which add nothing but time (`test_depth.py`)."""

from __future__ import annotations

from dataclasses import replace

import torch

from sooner import miniatures
from sooner.tasks.loading import ModelPair, load_pair


def shallow_pair(name: str) -> ModelPair:
    """A miniature's pair, whose target runs the trained layers alone, in fp32 on the CPU."""
    pair = load_pair(miniature=name, device="cpu", dtype="float32")
    folder, deep = miniatures.find(name).target, pair.target.model
    model = type(deep).from_pretrained(folder, dtype=torch.float32).eval()
    return replace(pair, target=replace(pair.target, model=model))
