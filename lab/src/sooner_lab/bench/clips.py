"""What a bench captions: held-out rendered clips, files, or samples of a public benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sooner.errors import SoonerError
from sooner.tasks.identity import find

from ..datasets import DETAILED_PROMPT, load
from ..datasets.loading import MIN_SECONDS
from ..datasets.schemas import find_schema


@dataclass(frozen=True)
class Clips:
    """Videos and what is asked of them.

    Attributes:
        files: the videos.
        prompt: the request; `None` is the model's own or a general one.
        dataset: name of the benchmark that they are samples of, or `None`.
        ids: the samples' names in it.
    """

    files: tuple[Path, ...]
    prompt: str | None = None
    dataset: str | None = None
    ids: tuple[str, ...] = ()


def find_clips(folder: Path, settings: Any, scenes: int = 8) -> Clips:
    """Return the clips that the settings of a bench name.

    Args:
        folder: where rendered and unpacked ones are written.
        settings: of `ClipSettings`.
        scenes: of a rendered clip.

    Raises:
        SoonerError: files beside a dataset, or as `from_dataset`.
    """
    if settings.files and settings.dataset is not None:
        raise SoonerError(
            f"files and --dataset {settings.dataset} exclude each other; give one of them"
        )
    if settings.files:
        return Clips(tuple(find(list(settings.files))))
    if settings.dataset is not None:
        return from_dataset(
            settings.dataset, settings.clips, settings.seed, settings.min_seconds, folder
        )
    return rendered(folder, settings.clips, settings.seed, scenes)


def rendered(folder: Path, count: int, seed: int, scenes: int = 8) -> Clips:
    """Clips of the miniature's world that training never saw, as H.264 files in `folder`.

    A scene has `world.SCENE_FRAMES` frames of film. A model that is shown `scenes * K` evenly
    sampled frames (`world.sample_indices`) sees K of each scene.
    """
    from ..worlds.video import film, world

    paths = []
    for index in range(count):
        clip = world.sample_clip(np.random.default_rng([seed, index]), scenes)
        paths.append(film.write_video(clip, folder / f"clip-{index}.mp4"))
    return Clips(tuple(paths))


def from_dataset(
    text: str,
    count: int,
    seed: int = 0,
    min_seconds: float | None = None,
    cache: Path | None = None,
) -> Clips:
    """Samples of a public benchmark: long videos, a request for a detailed description.

    Args:
        text: `NAME` (fetched from the hub), `NAME=FOLDER` or `NAME=HUB_ID`.
        count: most samples.
        seed: of their choice.
        min_seconds: shorter videos are left out; `None` is the paper's minute.
        cache: where videos in archives are unpacked.

    Raises:
        SoonerError: an unknown benchmark, nothing that fits, or videos that are not there.
    """
    name, _, source = text.partition("=")
    schema = find_schema(name)
    items = list(
        load(
            schema.name,
            source or None,
            min_seconds=MIN_SECONDS if min_seconds is None else min_seconds,
            count=count,
            seed=seed,
            cache=cache,
        )
    )
    ids = tuple(item.id for item in items)
    return Clips(tuple(item.video for item in items), DETAILED_PROMPT, schema.name, ids)
