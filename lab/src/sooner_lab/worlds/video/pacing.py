"""How long scenes last: clips with many, redundant frames a scene, and with short scenes in them.

Lengths are counted in frames that a model is shown, one for each half second of film: at
that rate a scene of `count` shown frames is seen at the moments 0/count, 1/count, ... A
scene shown once could not tell where its shape goes, so its shape rests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EVEN = (4, 8, 12)
NEEDLE = (1, 3)  # fewest and most shown frames of a needle
LONGEST = 16  # shown frames of a scene of an uneven clip
MAX_SCENES = 8  # of clips with other than two frames a scene


@dataclass(frozen=True)
class ScenePacing:
    """Shares of four kinds of clips, and the most frames that any of them shows.

    Attributes:
        pairs: two frames a scene.
        even: 4, 8 or 12 frames, the same for every scene.
        uneven: 1 to 16 frames, each scene its own.
        needle: one or two long scenes with one of 1 to 3 frames before, between or after them.
        maximum: frames of a clip; clips that would show more get fewer scenes or shorter ones.
    """

    pairs: float = 1.0
    even: float = 0.0
    uneven: float = 0.0
    needle: float = 0.0
    maximum: int = 64

    @property
    def _shares(self) -> tuple[float, ...]:
        return self.pairs, self.even, self.uneven, self.needle

    def draw(self, rng: np.random.Generator, scenes: int) -> np.ndarray:
        """Shown frames of each scene of one clip: [scenes]; a needle's clip has 2 or 3."""
        shares = np.cumsum(self._shares) / sum(self._shares)
        kind = int(np.searchsorted(shares, rng.random(), side="right"))
        if kind == 0:
            return np.full(scenes, 2)
        if kind == 1:
            count = int(rng.choice(EVEN))
            return np.full(min(scenes, MAX_SCENES, self.maximum // count), count)
        if kind == 2:
            return uneven(rng, min(scenes, MAX_SCENES), self.maximum)
        needle = int(rng.integers(NEEDLE[0], NEEDLE[1] + 1))
        return _around(rng, needle, int(rng.integers(max(EVEN), self.maximum - needle + 1)))


def uneven(rng: np.random.Generator, scenes: int, maximum: int = 64) -> np.ndarray:
    """Shown frames of each scene, 1..16 and `maximum` in all: [scenes]."""
    counts = rng.integers(1, LONGEST + 1, size=scenes)
    while counts.sum() > maximum:
        counts[counts.argmax()] -= 1
    return counts


def _around(rng: np.random.Generator, needle: int, rest: int) -> np.ndarray:
    """A needle and `rest` frames in one long scene or two: [2 or 3]."""
    if rng.random() < 0.4:
        return np.array([rest, needle])
    cut = int(rng.integers(2, rest - 1))
    return np.array([cut, needle, rest - cut])


def moments(frame_counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """The moment 0..1 of its scene that each shown frame of a clip is at: [sum of
    `frame_counts`]."""
    return np.concatenate([np.arange(count) / count for count in frame_counts])
