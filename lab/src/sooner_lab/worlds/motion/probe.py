"""The probe: a small CNN that names each colour's shape and place in a frame.

It judges continuations: does every shape keep its colour and form, and is it where the true
future has it? Its features also give a Fréchet distance over clips, because the network of real FVD
is not available.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from . import world

ABSENT = len(world.SHAPES)  # the kind of a colour that is not in the frame
NEAR = 2.0  # pixels


class MotionProbeConfig(PretrainedConfig):
    """Sizes of the probe: `channels` of its convolutions, `colours` and `kinds` it names."""

    model_type = "sooner_motion_probe"

    def __init__(self, channels: int = 40, colours: int = 4, kinds: int = 4, **kwargs: object):
        self.channels, self.colours, self.kinds = channels, colours, kinds
        super().__init__(**kwargs)  # type: ignore[arg-type]


class MotionProbe(PreTrainedModel):
    """Frames to, for each colour, a kind and a centre."""

    config_class = MotionProbeConfig
    config: MotionProbeConfig
    main_input_name = "frames"

    def __init__(self, config: MotionProbeConfig) -> None:
        super().__init__(config)
        channels = config.channels
        self.see = nn.Sequential(
            nn.Conv2d(3, channels, 4, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.SiLU(),
            nn.Conv2d(channels, channels, 3, padding=2, dilation=2), nn.SiLU(),
            nn.Conv2d(channels, channels, 3, padding=2, dilation=2), nn.SiLU(),
        )  # fmt: skip
        self.where = nn.Conv2d(channels, config.colours, 1)
        self.what = nn.Sequential(
            nn.Linear(2 * channels, 2 * channels), nn.SiLU(), nn.Linear(2 * channels, config.kinds)
        )
        self.colour = nn.Embedding(config.colours, channels)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Leave torch's own initialisation."""

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Look at frames [n, 3, H, W], -1..1.

        Returns:
            Logits of kinds [n, colours, kinds], the last of them "absent", and centres
            [n, colours, 2] as (x, y) in pixels.
        """
        seen = self.see(frames)  # [n, channels, H / 2, W / 2]
        heat = self.where(seen).float()
        share = heat.flatten(2).softmax(-1)  # [n, colours, places]
        rows, columns = (torch.arange(side) * 2.0 + 1 for side in seen.shape[2:])
        places = torch.stack(
            [columns.repeat(len(rows)), rows.repeat_interleave(len(columns))], dim=1
        )  # [places, 2]
        looked = share @ seen.flatten(2).transpose(1, 2).float()  # [n, colours, channels]
        loudest = heat.flatten(2).amax(-1, keepdim=True)  # absence is a heat that is low all over
        inputs = torch.cat([looked, self.colour.weight.expand_as(looked) * loudest], dim=-1)
        return self.what(inputs), share @ places


def load(folder: Path | str) -> MotionProbe:
    """The probe of a checkpoint folder, in fp32."""
    return MotionProbe.from_pretrained(folder, dtype=torch.float32).eval()


def labels(clip: world.MotionClip, frame: int) -> tuple[np.ndarray, np.ndarray]:
    """The right answer for a frame: kinds [colours] and centres [colours, 2]."""
    kinds = np.full(len(world.COLOURS), ABSENT)
    centres = np.zeros((len(world.COLOURS), 2), np.float32)
    for mover in clip.movers:
        slot = list(world.COLOURS).index(mover.colour)
        kinds[slot] = world.SHAPES.index(mover.kind)
        centres[slot] = mover.at(frame)
    return kinds, centres


@torch.no_grad()
def accuracy(
    probe: MotionProbe,
    pixels: torch.Tensor,
    clips: Sequence[world.MotionClip],
    begin: int = world.PREFIX,
) -> dict[str, float]:
    """How well frames `begin`.. of videos [rows, 3, 33, H, W] agree with the world's clips.

    Returns:
        `colour`: share of frames in which the set of colours is right. Over the true shapes of
        each frame: `kind`, share seen with the right form; `near`, share seen within two pixels
        of the true centre; `position_px`, mean distance of those seen. `heading`: share of
        shapes that move, over the last five frames, in the true direction on both axes.
    """
    rights: list[bool] = []
    kinds_right: list[bool] = []
    distances: list[float] = []
    headings: list[bool] = []
    for video, clip in zip(pixels, clips, strict=True):
        logits, positions = probe(video.transpose(0, 1))
        named, centres = logits.argmax(-1).numpy(), positions.numpy()  # [frames, colours(, 2)]
        truth = [labels(clip, frame) for frame in range(len(named))]
        for frame in range(begin, len(named)):
            kinds, places = truth[frame]
            seen = named[frame] != ABSENT
            rights.append(bool((seen == (kinds != ABSENT)).all()))
            for slot in np.flatnonzero(kinds != ABSENT):
                kinds_right.append(bool(named[frame, slot] == kinds[slot]))
                way = float(np.hypot(*(centres[frame, slot] - places[slot])))
                distances.append(way if seen[slot] else np.inf)
        for slot in np.flatnonzero(truth[-1][0] != ABSENT):
            moved = centres[-1, slot] - centres[-5, slot]
            meant = truth[-1][1][slot] - truth[-5][1][slot]
            headings.append(bool(np.abs(moved - meant).max() < NEAR))
    far = np.array(distances)
    seen_ones = far[np.isfinite(far)]
    return {
        "colour": float(np.mean(rights)),
        "kind": float(np.mean(kinds_right)),
        "near": float((far <= NEAR).mean()),
        "position_px": float(seen_ones.mean()) if len(seen_ones) else float("inf"),
        "heading": float(np.mean(headings)),
    }


@torch.no_grad()
def features(probe: MotionProbe, pixels: torch.Tensor, begin: int = world.PREFIX) -> torch.Tensor:
    """Features [n, 2 * channels] of videos [n, 3, 33, H, W], for `frechet`.

    The mean over frames `begin`.. and places of the last convolution, and the mean size of its
    change from frame to frame, which freezing or flickering videos have wrong.
    """
    rows = []
    for video in pixels:
        seen = probe.see(video[:, begin:].transpose(0, 1))  # [frames, channels, h, w]
        change = (seen[1:] - seen[:-1]).abs().mean((0, 2, 3))
        rows.append(torch.cat([seen.mean((0, 2, 3)), change]))
    return torch.stack(rows)


def frechet(first: torch.Tensor, two: torch.Tensor) -> float:
    """Fréchet distance of two sets of features [n, d], as normal distributions."""
    a, b = first.double().numpy(), two.double().numpy()
    cov_a, cov_b = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    # The trace of (A B)^(1/2) is the sum of the roots of A B's eigenvalues, all real and >= 0.
    roots = np.sqrt(np.clip(np.linalg.eigvals(cov_a @ cov_b).real, 0, None)).sum()
    return float(((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(cov_a + cov_b) - 2 * roots)
