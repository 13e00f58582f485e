"""The trained confirmation: a transformer that learnt to draw dead leaves, in place of a law.

It can be asked what a law can: how likely a drawing is, and for drawings of its own, which are made
by HF's own incremental `generate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sooner.decoding.grid import TokenGrid
from sooner.models.canvas import Canvas, Sampling
from sooner.models.video import TextModel

from ...worlds.leaves import learn_leaves, world
from ..imagine.subjects import Subject
from .settings import PICTURE

BATCH = 128
"""Drawings that `generate` makes at once."""


class LeafCanvas(TextModel, Canvas):
    """The decoder of the world of leaves; its prompt is the id that opens a drawing.

    Args:
        model: of `learn_leaves.load`.
        book: the codes' patches, `[CODES, PATCH * PATCH]`.
    """

    def __init__(self, model: Any, book: Tensor) -> None:
        Canvas.__init__(self, model, TokenGrid(world.GRID, world.GRID, (0, world.CODES)))
        self.book = book

    @property
    def sampling(self) -> Sampling:
        """What it learnt, as it is."""
        return Sampling()

    @property
    def codebook(self) -> Tensor:
        return self.book

    def pixels(self, tokens: Tensor) -> Tensor:
        drawn = world.pixels(self.grid.pick_codes(tokens).flatten(1), self.book)
        return drawn.clamp(0, 1)[:, None, ..., None].expand(-1, 1, -1, -1, 3)


class TrainedLaw:
    """What the judge of quality and the arms need of the trained decoder; see `CanvasLaw`.

    Args:
        folder: a run of `sooner train miniature leaves`, or its part `target`.

    Raises:
        SoonerError: no checkpoint is there.
    """

    height = width = world.GRID
    frames, codes, length = 1, world.CODES, world.TOKENS

    def __init__(self, folder: Path) -> None:
        inner = folder / "target" / "checkpoint"
        self.model, self.book = learn_leaves.load(inner if inner.is_dir() else folder)

    @torch.inference_mode()
    def log_likelihood(self, drawings: Tensor) -> Tensor:
        """Nats of each drawing `[n, length]`, `[n]` fp64."""
        return -learn_leaves.nats(self.model, drawings).double().sum(1)

    @torch.inference_mode()
    def sample(self, count: int, seed: int) -> Tensor:
        """Drawings by HF's `generate`, `[count, length]`."""
        made = []
        with torch.random.fork_rng(devices=[]):  # HF samples from the global generator
            torch.manual_seed(seed)
            for rows in torch.arange(count).split(BATCH):
                opening = torch.full((len(rows), 1), world.OPENING)
                # The id that opens a drawing is no code: it is never drawn within one.
                told = self.model.generate(
                    opening, attention_mask=torch.ones_like(opening), do_sample=True, top_k=0,
                    max_new_tokens=self.length, min_new_tokens=self.length,
                    suppress_tokens=[world.OPENING],
                )  # fmt: skip
                made.append(told[:, 1:])
        return torch.cat(made)

    @cached_property
    def subject(self) -> Subject:
        """To draw with; all prompts are alike."""

        def prepare(numbers: Sequence[int]) -> dict[str, Any]:
            ids = torch.full((len(numbers), 1), world.OPENING)
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

        return Subject(PICTURE, "leaves", LeafCanvas(self.model, self.book), prepare)

    def real(self, count: int, seed: int) -> dict[str, float]:
        """Nats of a code of real textures: by the model, and by how frequent the codes are."""
        drawn = world.codes(np.random.default_rng([seed, 5]), count, self.book)
        share = torch.bincount(drawn.flatten(), minlength=self.codes).double() / drawn.numel()
        with torch.inference_mode():
            own = float(learn_leaves.nats(self.model, drawn).mean())
        return {"nats": own, "by_frequency": -float((share * share.clamp_min(1e-30).log()).sum())}
