"""Media of requests as pixels: fetched, decoded, and kept for those who ask for them again."""

from __future__ import annotations

import copy
import hashlib
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ...tasks.frames import Frames
from ...tasks.video import VideoBytes, VideoInfo
from ..settings import ChatSettings
from .processes import Answer, DecodedMedia, DecodeProcesses
from .sources import Fetcher, MediaLimits, Sources, from_base64

Choose = Callable[[VideoInfo], Sequence[int]]
MAX_BYTES = 256 << 20
"""Bytes that each cache keeps."""
KINDS = ("image_processor", "video_processor")


class ByteCache:
    """Keeps items within a number of bytes; the least recently used go first. For any threads."""

    def __init__(self, maximum: int = MAX_BYTES) -> None:
        self.maximum, self.size = maximum, 0
        self._items: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any:
        """Returns an item; `None` if it is not there."""
        with self._lock:
            if key not in self._items:
                return None
            self._items.move_to_end(key)
            return self._items[key][0]

    def put(self, key: Hashable, item: Any, size: int) -> Any:
        """Returns the item, which takes `size` bytes."""
        with self._lock:
            if key not in self._items:
                self._items[key] = item, size
                self.size += size
            while self.size > self.maximum:
                self.size -= self._items.popitem(last=False)[1][1]
        return item


class MediaReader:
    """Gets pictures, videos and PDFs; every method blocks, and may be called in any thread.

    Each comes with a key, a hash of its content and of what was chosen of it: the same key is the
    same pixels.

    Args:
        sources: where files may come from.
        processes: that decode.
        pages: options of the decoder of PDFs, see `decoders.pages`.
        cache_bytes: bytes of pixels that are kept.
    """

    def __init__(
        self,
        sources: Sources,
        processes: DecodeProcesses,
        pages: dict[str, Any] | None = None,
        cache_bytes: int = MAX_BYTES,
    ) -> None:
        self.sources, self.processes, self.page_options = sources, processes, pages or {}
        self._cache = ByteCache(cache_bytes)

    def picture(self, url: str) -> list[tuple[np.ndarray, str]]:
        """Returns the picture of a URL, uint8 `[height, width, 3]`, with its key.

        Raises:
            MediaError: it can't be had, or is refused.
            MediaBusyError: all processes that decode are taken.
        """
        key, media = self._decoded("picture", self.sources.read(url))
        return [(media.pictures[0], key)]

    def video(self, url: str, choose: Choose) -> list[tuple[Frames, str]]:
        """Returns the frames of a video that `choose` picks, with their key.

        Args:
            choose: indices of frames, ascending; it may refuse by a `MediaError`. It is the same
                for the same content.

        Raises:
            MediaError, MediaBusyError: as `picture`.
        """
        source = VideoBytes(b"")  # the content itself is not needed any more

        def answer(question: dict[str, Any]) -> dict[str, Any]:
            indices = choose(VideoInfo(source, **question["choose"]))
            return {"indices": [int(index) for index in indices]}

        key, media = self._decoded("video", self.sources.read(url), answer)
        report = media.report
        frames = Frames(media.pictures[0], report["indices"], VideoInfo(source, **report["info"]))
        return [(frames, f"{key}:{hashed(str(report['indices']).encode())[:16]}")]

    def pages(self, data_or_url: str) -> list[tuple[np.ndarray, str]]:
        """Returns the pages of a PDF, each `[height, width, 3]` with its key.

        Args:
            data_or_url: a URL, or the content in base64.

        Raises:
            MediaError, MediaBusyError: as `picture`.
        """
        is_url = ":" in data_or_url[:16]
        limits = self.sources.limits
        data = self.sources.read(data_or_url) if is_url else from_base64(data_or_url, limits)
        key, media = self._decoded("pages", data, **self.page_options)
        return [(page, f"{key}:{number}") for number, page in enumerate(media.pictures, start=1)]

    def _decoded(
        self, decoder: str, data: bytes, answer: Answer | None = None, **options: Any
    ) -> tuple[str, DecodedMedia]:
        """Returns a key of a content, and what is decoded of it."""
        key = f"{decoder}:{hashed(data)}"
        media = self._cache.get(key)
        if media is None:
            media = self.processes.decode(decoder, data, answer, **options)
            self._cache.put(key, media, media.nbytes)
        return key, media


def hashed(data: bytes) -> str:
    """Returns hash of a content."""
    return hashlib.sha256(data).hexdigest()


def media_reader(settings: ChatSettings, page_size: tuple[int, int] | None = None) -> MediaReader:
    """A reader as the settings have it.

    Args:
        page_size: width and height of the pages that the model was trained on, if that is known.
    """
    limits = MediaLimits(
        max_bytes=settings.max_media_bytes,
        max_pixels=settings.max_pixels,
        max_total=settings.media_memory // 4,
        max_video_seconds=settings.max_video_seconds,
        max_pages=settings.max_pages,
        seconds=settings.media_seconds,
        memory=settings.media_memory,
    )
    root = None if settings.media_root is None else Path(settings.media_root)
    fetch = Fetcher(limits).get if settings.allow_remote_media else None
    return MediaReader(
        Sources(limits, root, fetch),
        DecodeProcesses(settings.media_workers, limits),
        {} if page_size is None else {"within": page_size},
    )


class ProcessedMedia:
    """Pixels as one processor gives them, by the content of what it was given. For one thread.

    Attributes:
        media_keys: content hashes of the media of the request under way, in order; without any,
            nothing is looked up.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.media_keys: tuple[str, ...] = ()
        self._cache = ByteCache(max_bytes)

    def put_into(self, processor: Any) -> None:
        """Let a processor of text and pixels ask here before it has pixels processed."""
        for kind in KINDS:
            if getattr(processor, kind, None) is not None:
                setattr(processor, kind, _CachedProcessor(self, kind, getattr(processor, kind)))

    def get(self, kind: str, process: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Returns what `process(*args, **options)` gives for the media that are shown."""
        if not self.media_keys or len(args) != 1:
            return process(*args, **options)
        try:
            key = (kind, self.media_keys, pickle.dumps(options))
        except Exception:  # an option whose content is not known
            return process(*args, **options)
        batch = self._cache.get(key)
        if batch is None:
            batch = process(*args, **options)
            tensors = [value for value in batch.data.values() if isinstance(value, Tensor)]
            self._cache.put(key, batch, sum(tensor.nbytes for tensor in tensors))
        result = copy.copy(batch)
        result.data = dict(result.data)  # processors take entries out
        return result


class _CachedProcessor:
    """Stands for a processor of pictures or clips; whatever else it has, this has as well."""

    def __init__(self, media: ProcessedMedia, kind: str, processor: Any) -> None:
        self._media, self._kind, self._processor = media, kind, processor

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._media.get(self._kind, self._processor, args, options)

    def __copy__(self) -> Any:
        return copy.copy(self._processor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)
