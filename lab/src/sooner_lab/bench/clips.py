"""What a bench captions: held-out rendered clips, files, or samples of a public benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sooner.errors import SoonerError
from sooner.tasks.identity import find

from ..datasets import DETAILED_PROMPT, SCHEMAS, Schema, load
from ..datasets.loading import MIN_SECONDS
from ..datasets.schemas import find_schema
from ..datasets.tables import read_tables


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
        text: `NAME` (fetched from the hub), `NAME=FOLDER` or `NAME=HUB_ID`, or a `FOLDER` that is
            laid out as one of the benchmarks or simply holds videos.
        count: most samples.
        seed: of their choice.
        min_seconds: shorter videos are left out; `None` is the paper's minute, and no limit for a
            folder that merely holds videos.
        cache: where videos in archives are unpacked.

    Raises:
        SoonerError: an unknown benchmark, nothing that fits, or videos that are not there.
    """
    name, _, source = text.partition("=")
    folder = Path(text)
    if not source and folder.is_dir():
        schema = recognise(folder)
        if schema is None:
            return Clips(tuple(find([folder])[:count]), dataset=folder.name)
        name, source = schema.name, text
    items = list(
        load(
            find_schema(name).name,
            source or None,
            min_seconds=MIN_SECONDS if min_seconds is None else min_seconds,
            count=count,
            seed=seed,
            cache=cache,
        )
    )
    ids = tuple(item.id for item in items)
    return Clips(tuple(item.video for item in items), DETAILED_PROMPT, find_schema(name).name, ids)


def recognise(folder: Path) -> Schema | None:
    """The benchmark that a local folder is laid out as, or `None`.

    Several layouts may fit a table of few columns; then the folder's own name decides.
    """
    fitting = [schema for schema in SCHEMAS.values() if _fits(schema, folder)]
    name = _bare(folder.resolve().name)
    named = [schema for schema in fitting if _bare(schema.name) in name]
    return next(iter(named or fitting), None)


def _bare(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _fits(schema: Schema, folder: Path) -> bool:
    try:
        table, record = next(read_tables(schema, folder))
        schema.video(record, table)
    except (SoonerError, StopIteration):
        return False
    return True
