"""How long scenes last: clips with many, redundant frames a scene, and needles in long clips.

Lengths are counted in frames that a model is shown, one for each `world.SAMPLE_EVERY` frames of
film: at that rate a scene of `count` shown frames is seen at the moments 0/count, 1/count, ... A
scene shown once could not tell where its shape goes, so its shape rests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sooner.errors import SoonerError

from . import world

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
        most: frames of a clip; clips that would show more get fewer scenes or shorter ones.
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


def paced_clip(
    rng: np.random.Generator, frame_counts: Sequence[int] | np.ndarray
) -> world.SceneClip:
    """Draw a clip whose scenes are shown for `frame_counts` frames each; those shown once rest."""
    drawn = world.sample_clip(rng, len(frame_counts)).scenes
    scenes = tuple(
        world.still(scene) if count == 1 else scene
        for scene, count in zip(drawn, frame_counts, strict=True)
    )
    return world.SceneClip(scenes, tuple(int(count) * world.SAMPLE_EVERY for count in frame_counts))


@dataclass(frozen=True)
class NeedleClip:
    """A long clip with one short scene, at `place` in scene order, to be found in it."""

    clip: world.SceneClip
    place: int

    @property
    def answer(self) -> str:
        """The needle's sentence, as it stands in the clip's caption."""
        return world.describe(self.clip.scenes[self.place], self.place)

    def score(self, text: str) -> dict[str, float]:
        """What `text` has right of the needle alone, see `world.score`."""
        return world.score(text, self.clip, [self.place])


def needle_clip(
    rng: np.random.Generator, frames: int = 48, depth: float = 0.5, needle_frames: int = 2
) -> NeedleClip:
    """Hide a short scene in a long clip.

    Args:
        frames: shown frames in all, the needle's included.
        depth: where the needle begins, 0 (the clip opens with it) to 1 (it ends with it), as a
            share of the frames around it. A long scene of less than two frames is left out.
        needle_frames: shown frames of the needle; of one, its shape rests.

    Raises:
        SoonerError: a depth outside 0..1, or fewer than two frames around the needle.
    """
    if not 0 <= depth <= 1 or needle_frames < 1 or frames < needle_frames + 2:
        raise SoonerError(
            f"no needle of {needle_frames} frames at depth {depth} in {frames} frames; "
            "depth is 0 to 1, and two frames or more stand around it"
        )
    rest = frames - needle_frames
    before = round(depth * rest)
    before = 0 if before < 2 else rest if rest - before < 2 else before
    parts = [before, needle_frames, rest - before]
    counts = [count for count in parts if count]
    return NeedleClip(paced_clip(rng, counts), place=1 if before else 0)
