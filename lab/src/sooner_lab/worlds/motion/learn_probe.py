"""How the probe learns: frames as the tokenizer gives them back, labels from the world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..lessons import Lesson
from ..training import need, save_half
from . import card, evaluate, world
from .pixels import to_pixels
from .probe import ABSENT, MotionProbe, MotionProbeConfig, labels, load
from .recipe import MotionRecipe, MotionStage

_FRAMES = 4  # frames of a clip that a step looks at


class ProbeLesson(Lesson):
    """See `lessons.Lesson`."""

    def __init__(self, out: Path, config: MotionRecipe) -> None:
        self.config = config
        self.tokenizer = evaluate.load_tokenizer(need(out, "tokenizer"))
        self.probe = MotionProbe(MotionProbeConfig(**config.shape))
        self.model: nn.Module = self.probe

    def loss(
        self, stage: MotionStage, rng: np.random.Generator
    ) -> tuple[torch.Tensor, dict[str, float]]:
        frames, kinds, centres = self._draw(rng, stage.rows, stage.latents or 3, stage.lattice)
        logits, guess = self.probe(frames)
        named = functional.cross_entropy(logits.flatten(0, 1), kinds.flatten())
        there = kinds != ABSENT
        place = (guess - centres)[there].abs().mean()
        right = (logits.argmax(-1) == kinds)[there].float().mean()
        return named + 0.1 * place, {"right": float(right), "pixels": float(place.detach())}

    def check(self) -> dict[str, float]:
        return card.probe_figures(self.probe, self.tokenizer, 4)

    def write(self, folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        save_half(self.probe, folder)
        loaded = load(folder)
        return loaded, {"held_out": card.probe_figures(loaded, self.tokenizer, 64)}

    def _draw(
        self, rng: np.random.Generator, rows: int, latents: int, lattice: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Frames [n, 3, H, W], kinds [n, colours] and centres [n, colours, 2]."""
        length = 1 + self.tokenizer.config.group * (latents - 1)
        films, targets = [], []
        indices = rng.choice(length, size=min(_FRAMES, length), replace=False)
        for _ in range(rows):
            clip = world.sample(rng, lattice)
            begin = int(rng.integers(world.FRAMES - length + 1))
            films.append(world.render(clip, rng, range(begin, begin + length)))
            targets += [labels(clip, begin + int(frame)) for frame in indices]
        pixels = to_pixels(torch.from_numpy(np.stack(films)))
        # Some clips as filmed, so that the probe may judge those too.
        raw_rows = max(rows // 4, 1)
        pixels[raw_rows:] = self.tokenizer.decode(self.tokenizer.encode(pixels[raw_rows:])).float()
        frames = pixels[:, :, indices].transpose(1, 2).flatten(0, 1)
        kinds, centres = (np.stack(part) for part in zip(*targets, strict=True))
        return frames, torch.from_numpy(kinds), torch.from_numpy(centres)
