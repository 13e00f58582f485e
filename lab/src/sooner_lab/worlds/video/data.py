"""Training batches of the moving-shapes world.

Two kinds. `LabelledFrames` are single frames with what each video token should see in them; they
teach the vision tower. `CaptionRows` are token rows around video features; they teach the decoder.
While the tower is frozen its features come from a `bank.SceneBank`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import avg_pool2d, interpolate

from . import architecture, words, world

IGNORE = -100
LABEL_SIZES = (
    len(world.BACKGROUNDS),
    1 + len(world.SHAPES),
    1 + len(world.COLOURS),
    1 + 9,
)  # classes of each token label; class 0 of the last three is "no shape here"


@dataclass(frozen=True)
class LabelledFrames:
    """`pixels` [frames, 3, side, side], normalised; `labels` [frames, tokens, len(LABEL_SIZES)]."""

    pixels: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True)
class CaptionRows:
    """`ids` and `labels` [rows, length]; `frames_per_row` video frames fill the `<video>` run."""

    ids: torch.Tensor
    labels: torch.Tensor
    frames_per_row: int


def token_labels(
    scene: world.Scene, at: tuple[float, float], everywhere: bool = False
) -> np.ndarray:
    """What each pooled token of a frame is to tell: int64 [tokens, len(LABEL_SIZES)].

    A token tells of the shape if the shape's bounding box covers a tenth of its area or more, or if
    every token is to (`everywhere`).
    """
    edges = np.arange(architecture.POOLED + 1) / architecture.POOLED
    overlap = []
    for middle in at:
        low = np.maximum(edges[:-1], middle - scene.radius)
        high = np.minimum(edges[1:], middle + scene.radius)
        overlap.append(np.clip(high - low, 0, None) * architecture.POOLED)
    covered = (overlap[1][:, None] * overlap[0][None, :] >= 0.1).reshape(-1)  # [tokens]
    cell = 3 * min(int(at[1] * 3), 2) + min(int(at[0] * 3), 2)
    seen = (
        list(world.SHAPES).index(scene.shape) + 1,
        list(world.COLOURS).index(scene.colour) + 1,
        cell + 1,
    )
    labels = np.empty((len(covered), len(LABEL_SIZES)), dtype=np.int64)
    labels[:, 0] = list(world.BACKGROUNDS).index(scene.background)
    labels[:, 1:] = (covered | everywhere)[:, None] * np.array(seen)
    return labels


def draw_frames(
    scenes: list[world.Scene],
    moments: np.ndarray,
    noise: torch.Generator,
    everywhere: bool = False,
) -> LabelledFrames:
    """Render and degrade one frame of each scene at its moment; see `token_labels`."""
    side = architecture.IMAGE_SIDE
    pixels = np.empty((len(scenes), side, side, 3), dtype=np.uint8)
    labels = np.empty((len(scenes), architecture.POOLED**2, len(LABEL_SIZES)), dtype=np.int64)
    for slot, scene in enumerate(scenes):
        at = world.centre(scene, float(moments[slot]))
        world.draw(scene, at, pixels[slot])
        labels[slot] = token_labels(scene, at, everywhere)
    return LabelledFrames(normalise(degrade(pixels, noise)), torch.from_numpy(labels))


def sample_frames(
    rng: np.random.Generator, count: int, noise: torch.Generator, everywhere: bool = False
) -> LabelledFrames:
    """`count` unrelated frames; one in five shows its shape under way."""
    scenes = [world.sample_scene(rng) for _ in range(count)]
    moments = np.where(rng.random(count) < 0.2, rng.uniform(*world.MOVE, count), 0.0)
    moments = np.where(rng.random(count) < 0.5, moments, 1.0 - moments)
    return draw_frames(scenes, moments, noise, everywhere)


def degrade(pixels: np.ndarray, noise: torch.Generator) -> torch.Tensor:
    """Make clean renderings look filmed and encoded: light, chroma loss, softness, noise.

    Args:
        pixels: uint8 `[frames, side, side, 3]`.

    Returns:
        float32 `[frames, 3, side, side]` in 0..1.
    """
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    count = images.shape[0]

    def draw(low: float, high: float) -> torch.Tensor:
        return torch.rand(count, 1, 1, 1, generator=noise) * (high - low) + low

    # 4:2:0 video keeps brightness at full and colour at half resolution.
    luma = images.mean(dim=1, keepdim=True)
    chroma = interpolate(avg_pool2d(images - luma, 2), scale_factor=2.0, mode="bilinear")
    images = torch.lerp(images, luma + chroma, draw(0.0, 1.0).round())
    soft = avg_pool2d(images, 3, stride=1, padding=1, count_include_pad=False)
    images = torch.lerp(images, soft, draw(-0.5, 0.5).clamp(min=0))
    images = images * draw(0.9, 1.1) + draw(-0.04, 0.04)
    images = images + draw(0.0, 0.02) * torch.randn(images.shape, generator=noise)
    return images.clamp(0, 1)


def normalise(images: torch.Tensor) -> torch.Tensor:
    """As the processors do: 0..1 to -1..1."""
    return (images - 0.5) / 0.5


class CaptionRowWriter:
    """Token rows as the chat template lays them out."""

    def __init__(self) -> None:
        self.tokenizer = words.build_tokenizer()
        self.start, self.end = self._ids(words.START)[0], self._ids(words.END)[0]
        self.video = self._ids(words.VIDEO)[0]
        self.numbers = [self._ids(number)[0] for number in world.NUMBERS]
        self.head = [self.start, *self._ids("user")]
        self.tail = [self.end, self.start, *self._ids("assistant")]
        self.prompts = [self._ids(prompt) for prompt in words.PROMPTS]

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def sentence(self, scene: world.Scene) -> list[int]:
        return self._ids(world.describe(scene, 0))

    def prompt(self, rng: np.random.Generator) -> list[int]:
        """A prompt of the world's, or, one time in five, any tokens at all.

        The answer depends on the video alone, so that other wordings of a request work, too.
        """
        if rng.random() < 0.8:
            return self.prompts[rng.integers(len(self.prompts))]
        size = int(rng.integers(1, 16))
        return rng.integers(len(words.SPECIALS), len(self.tokenizer), size=size).tolist()

    def write(
        self, rng: np.random.Generator, sentences: list[list[list[int]]], frames: int
    ) -> CaptionRows:
        """Rows of ids and labels for clips given as their scenes' sentences.

        One prompt a batch, so that rows differ in length by their captions only; padding is on
        the right, where causal attention never looks.
        """
        video = [self.video] * (frames * architecture.POOLED**2 + 1)
        before = [*self.head, *video, *self.prompt(rng), *self.tail]
        answers = []
        for clip in sentences:
            answer = []
            for place, sentence in enumerate(clip):
                answer += [sentence[0], self.numbers[place], *sentence[2:]]
            answers.append([*answer, self.end])
        length = len(before) + max(len(answer) for answer in answers)
        ids = torch.full((len(answers), length), self.end)
        labels = torch.full((len(answers), length), IGNORE)
        for row, answer in enumerate(answers):
            stop = len(before) + len(answer)
            ids[row, :stop] = torch.tensor([*before, *answer])
            labels[row, len(before) : stop] = torch.tensor(answer)
        return CaptionRows(ids, labels, frames)


def places_to_keep(
    rng: np.random.Generator, rows: int, length: int, video: range, drop: tuple[float, float]
) -> torch.Tensor:
    """Which places of each row stay when visual tokens are dropped at random: [rows, kept].

    One share of `drop` (fewest, most) holds for all rows, the dropped tokens are each row's own.
    The places ascend, and are the kept tokens' positions too.
    """
    count = max(round(len(video) * (1 - rng.uniform(*drop))), 1)
    before, after = np.arange(video.start), np.arange(video.stop, length)
    places = [
        np.concatenate([before, np.sort(rng.choice(video, size=count, replace=False)), after])
        for _ in range(rows)
    ]
    return torch.from_numpy(np.stack(places))
