"""Samples of a benchmark as the paper takes them: long videos, a few of them, one request."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sooner.errors import SoonerError
from sooner.io import cache_folder
from sooner.tasks.video import open_video, probe

from .schemas import Schema, find_schema
from .tables import read_tables
from .videos import VideoStore

logger = logging.getLogger("sooner")

DETAILED_PROMPT = (
    "Please provide a detailed description of the video, focusing on the main subjects, their "
    "actions and the background scenes."
)
"""The request of the paper's case studies (figures 10 and 11)."""

MIN_SECONDS, SAMPLES = 60.0, 50
"""The paper's filter (appendix A): at least one minute, 50 random samples a benchmark."""


@dataclass(frozen=True)
class Item:
    """One video and what is asked of it.

    Attributes:
        id: benchmark and video, such as `MLVU/1_plotQA/7.mp4`.
        video: the file.
        prompt: the request.
        seconds: length of the video, as far as its header tells.
    """

    id: str
    video: Path
    prompt: str
    seconds: float


def load(
    name: str,
    source: str | Path | None = None,
    *,
    min_seconds: float = MIN_SECONDS,
    count: int = SAMPLES,
    seed: int = 0,
    prompt: str = DETAILED_PROMPT,
    cache: Path | None = None,
    revision: str | None = None,
) -> Iterator[Item]:
    """Yield samples of a benchmark, one for each video, in an order that only `seed` decides.

    Args:
        name: one of `SCHEMAS`, such as `VideoDetailCaption` or `MLVU`.
        source: a local folder laid out like the hub's repository, or a hub id; the benchmark's own
            repository by default, which is downloaded whole (10 to 400 GB).
        min_seconds: shorter videos are left out.
        count: most samples.
        seed: of the order.
        prompt: the request for every video.
        cache: where videos in archives are unpacked; `~/.cache/sooner/datasets` by default.
        revision: of the hub's repository.

    Raises:
        SoonerError: an unknown name, a folder that is not there or is another dataset, parquet
            tables without `sooner-lab[bench]`, or no video that passes. Names and tables are
            checked at once, videos as they are yielded.
    """
    schema = find_schema(name)
    root = find_root(schema, source, revision)
    seconds: dict[str, float | None] = {}
    for table, record in read_tables(schema, root):
        seconds.setdefault(schema.video(record, table), schema.known_seconds(record))
    order = sorted(seconds)
    random.Random(seed).shuffle(order)
    store = VideoStore(root, (cache or cache_folder("datasets")) / schema.name)
    return _samples(schema, store, [(video, seconds[video]) for video in order], {
        "min_seconds": min_seconds, "count": count, "prompt": prompt,
    })  # fmt: skip


def _samples(
    schema: Schema, store: VideoStore, order: list[tuple[str, float | None]], how: dict
) -> Iterator[Item]:
    count, missing, short = 0, [], 0
    for video, known in order:
        if count == how["count"]:
            return
        if known is not None and known < how["min_seconds"]:
            short += 1
            continue
        path = find_video(schema, store, video)
        seconds = None if path is None else seconds_of(path)
        if path is None or seconds is None:
            missing.append(video)
        elif seconds < how["min_seconds"]:
            short += 1
        else:
            count += 1
            yield Item(f"{schema.name}/{video}", path, how["prompt"], seconds)
    message = f"{schema.name}: {short} videos are shorter than {how['min_seconds']:g} s"
    if missing:
        message += (
            f", {len(missing)} are not under '{store.root}' or can't be read ('{missing[0]}')"
        )
    if not count:
        raise SoonerError(f"{message}, so none is left; lower min_seconds or fetch the videos")
    logger.warning(f"{message}, so {count} samples instead of {how['count']}")


def find_video(schema: Schema, store: VideoStore, video: str) -> Path | None:
    """A video's file, with or without the prefix that a benchmark's files should have."""
    return store.locate(video) or store.locate(video.removeprefix(schema.prefix))


def seconds_of(path: Path) -> float | None:
    """Length by the header, since counting packets reads an hour of video; `None` if unreadable."""
    try:
        with open_video(path) as (container, stream):
            if stream.duration:
                return float(stream.duration * stream.time_base)
            if container.duration:
                return container.duration / 1e6
        return probe(path).seconds
    except SoonerError as error:
        logger.warning(f"{error}; left out")
        return None


def find_root(schema: Schema, source: str | Path | None, revision: str | None = None) -> Path:
    """The folder of a dataset: the one given, or fetched from the hub.

    Raises:
        SoonerError: neither a folder nor a hub id, or the hub does not give it.
    """
    if source is not None and Path(source).is_dir():
        return Path(source)
    hub = str(source) if source is not None else schema.hub
    if isinstance(source, Path) or hub.count("/") != 1 or hub.startswith((".", "/", "~")):
        raise SoonerError(
            f"{schema.name}: folder '{source}' does not exist; give one, or a hub id such as "
            f"{schema.hub}"
        )
    return _download(schema, hub, revision)


def _download(schema: Schema, hub: str, revision: str | None) -> Path:
    import huggingface_hub

    patterns = [f"*{pattern}" for pattern in (*schema.tables, *schema.videos)]
    try:
        root = huggingface_hub.snapshot_download(
            hub, repo_type="dataset", revision=revision, allow_patterns=patterns
        )
    except Exception as error:  # every failure of the network has a class of its own
        raise SoonerError(
            f"{schema.name}: can't fetch '{hub}' from the hub ({type(error).__name__}); check the "
            "id, your access and the connection, or give a local folder"
        ) from error
    return Path(root)
