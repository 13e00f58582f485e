"""Scenes encoded once by the frozen tower, from which a decoder's training clips are put together.

A decoder step then pays for neither rendering nor vision. Each scene is kept at a few moments;
whatever frames a clip shows of it, each takes the features of the nearest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import LlavaOnevisionForConditionalGeneration

from . import data, losses, pacing, world

MOMENTS = (0.0, 0.3125, 0.375, 0.4375, 0.5)  # rest, under way three times, rest
_EDGES = (0.265625, 0.34375, 0.40625, 0.46875)  # halfway between moments; at first 1/16 of the way


def moment_bins(moments: np.ndarray) -> np.ndarray:
    """The place in `MOMENTS` that stands for each moment 0..1 of a scene."""
    return np.searchsorted(_EDGES, moments, side="right")


@dataclass(frozen=True)
class SceneBank:
    """Scenes with their encoded frames.

    Attributes:
        features: [scenes, moments, tokens, width].
        sentences: token ids of each scene's sentence.
        resting: the same for the scene when it is shown once, its shape at rest.
    """

    scenes: list[world.Scene]
    features: torch.Tensor
    sentences: list[list[int]]
    resting: list[list[int]]

    def draw(self, rng: np.random.Generator, rows: int, scenes: int) -> np.ndarray:
        """Clips as scene numbers [rows, scenes]; neighbours differ in background."""
        picked = rng.integers(len(self.scenes), size=(rows, scenes))
        for row in picked:
            for place in range(1, scenes):
                before = self.scenes[row[place - 1]].background
                while self.scenes[row[place]].background == before:
                    row[place] = rng.integers(len(self.scenes))
        return picked

    def gather(self, picked: np.ndarray, frame_counts: np.ndarray) -> torch.Tensor:
        """Features of each clip's frames: [rows, frames * tokens, width].

        Args:
            frame_counts: frames of each scene [rows, scenes]; all rows have equally many in all.
        """
        which = np.stack(
            [np.repeat(row, counts) for row, counts in zip(picked, frame_counts, strict=True)]
        )
        bins = np.stack([moment_bins(pacing.moments(counts)) for counts in frame_counts])
        seen = self.features[torch.from_numpy(which), torch.from_numpy(bins)]
        return seen.flatten(1, 2)  # [rows, frames, tokens, width] -> [rows, frames * tokens, width]

    def report(self, picked: Sequence[int], frame_counts: Sequence[int]) -> list[list[int]]:
        """The sentences of one clip."""
        return [
            (self.resting if count == 1 else self.sentences)[scene]
            for scene, count in zip(picked, frame_counts, strict=True)
        ]


def encode(
    model: LlavaOnevisionForConditionalGeneration,
    writer: data.CaptionRowWriter,
    size: int,
    seed: Sequence[int],
) -> SceneBank:
    """Draw `size` scenes from `seed` and encode each at `MOMENTS`, filmed and degraded."""
    rng = np.random.default_rng(seed)
    noise = torch.Generator().manual_seed(int(rng.integers(2**31)))
    scenes = [world.sample_scene(rng) for _ in range(size)]
    moments = np.array(MOMENTS)
    features = []
    with torch.no_grad():
        for begin in range(0, len(scenes), 32):
            some = scenes[begin : begin + 32]
            repeated = [scene for scene in some for _ in moments]
            frames = data.draw_frames(repeated, np.tile(moments, len(some)), noise)
            tokens = losses.see(model, frames.pixels)  # [scenes * moments, tokens, width]
            features.append(tokens.unflatten(0, (len(some), len(moments))))
    return SceneBank(
        scenes,
        torch.cat(features),
        [writer.sentence(scene) for scene in scenes],
        [writer.sentence(world.still(scene)) for scene in scenes],
    )
