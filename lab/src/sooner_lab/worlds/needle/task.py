"""Needle tasks for the miniature: one clip, clips with captions between, and needles in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...needles import NeedleSample
from ...needles.layout import cut
from ...needles.rendering import Part
from . import world

KINDS = ("v-niah", "mm-niah", "order")
"""A clip; a quarter of the tokens captions; two scenes of the colour in question."""
PIECE, KEYS = 16, 8
"""Frames between captions, about, and colours that have a needle."""


@dataclass(frozen=True)
class LetterTask:
    """Makes samples of a kind with the miniature's processor; a seed draws clip and question."""

    processor: Any
    kind: str = KINDS[0]
    unit: ClassVar[str] = "tokens"

    def sample(self, length: int, depth: float, seed: int = 0) -> NeedleSample:
        """Return a prompt of about `length` tokens, its needle at `depth` of the frames."""
        rng = np.random.default_rng([seed, length, int(100 * depth), KINDS.index(self.kind)])
        is_mixed, twins = self.kind == "mm-niah", int(self.kind == "order")
        share = 0.75 if is_mixed else 1.0
        frames, pieces = cut(int(share * length) // world.TOKENS, PIECE, 1, is_mixed)
        clip = world.sample_clip(rng, frames, KEYS, twins, at=round(depth * (frames - 1)))
        film = np.split(world.draw(rng, clip.colours, clip.letters)[0], pieces)
        gap = round(frames * world.TOKENS / 3 / world.CAPTION / pieces)
        parts: list[Part] = [film[0]]
        for piece in film[1:]:
            parts += [world.captions(rng, gap), piece]
        return NeedleSample(clip.asks[0], tuple(parts), 1.0)
