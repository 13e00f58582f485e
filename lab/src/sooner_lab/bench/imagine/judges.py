"""Automatic judges of drawings: the miniatures' own classifier and probe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from sooner import miniatures


class Judge(Protocol):
    """Reads decoded drawings, `[rows, frames, height, width, 3]` in 0..1."""

    name: str

    def features(self, pixels: Tensor) -> Tensor:
        """`[rows, features]`, for distances between sets."""

    def accuracy(self, pixels: Tensor, numbers: Sequence[int]) -> dict[str, float]:
        """How well drawings are what the prompts with these numbers asked for."""


class PictureJudge:
    """The image miniature's attribute classifier."""

    name = "attribute classifier"

    def __init__(self, model: Any, pictures: Sequence[Any]) -> None:
        self.model, self.pictures = model, pictures

    def features(self, pixels: Tensor) -> Tensor:
        return self.model.features(_planes(pixels)).detach()

    def accuracy(self, pixels: Tensor, numbers: Sequence[int]) -> dict[str, float]:
        return self.model.accuracy(_planes(pixels), [self.pictures[number] for number in numbers])


class MotionJudge:
    """The motion miniature's probe of shapes and places."""

    name = "motion probe"

    def __init__(self, probing: Any, model: Any, clips: Sequence[Any]) -> None:
        self.probing, self.model, self.clips = probing, model, clips

    def features(self, pixels: Tensor) -> Tensor:
        return self.probing.features(self.model, _film(pixels))

    def accuracy(self, pixels: Tensor, numbers: Sequence[int]) -> dict[str, float]:
        clips = [self.clips[number] for number in numbers]
        return self.probing.accuracy(self.model, _film(pixels), clips)


def judge_pictures(pictures: Sequence[Any]) -> Judge | None:
    """The classifier that ships with the image miniature, if it is in this installation."""
    from ...worlds.image import classifier

    folder = _folder("image")
    return None if folder is None else PictureJudge(classifier.load(folder), pictures)


def judge_motion(clips: Sequence[Any]) -> Judge | None:
    """The probe that ships with the motion miniature, if it is in this installation."""
    from ...worlds.motion import probe

    folder = _folder("motion")
    return None if folder is None else MotionJudge(probe, probe.load(folder), clips)


def _folder(miniature: str) -> Path | None:
    folder = miniatures.find(miniature).judge
    return folder if folder is not None and (folder / "config.json").is_file() else None


def _planes(pixels: Tensor) -> Tensor:
    """`[n, 1, h, w, 3]` to the classifier's `[n, 3, h, w]`."""
    return pixels[:, 0].permute(0, 3, 1, 2).contiguous()


def _film(pixels: Tensor) -> Tensor:
    """`[n, frames, h, w, 3]` in 0..1 to the probe's `[n, 3, frames, h, w]` in -1..1."""
    return pixels.permute(0, 4, 1, 2, 3).contiguous() * 2 - 1
