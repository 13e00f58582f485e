"""Media of requests as pixels: fetched, decoded, and kept for those who ask for them again."""

from __future__ import annotations

import copy
import hashlib
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ...tasks.frames import Frames
from ...tasks.video import VideoBytes, VideoInfo
from .processes import Answer, DecodedMedia, DecodeProcesses
from .sources import (
    MediaError,
    MediaSettings,
    display_url,
    from_base64,
    from_data,
    path_of,
    read_below,
)

Choose = Callable[[VideoInfo], Sequence[int]]
MAX_BYTES = 256 << 20
"""Bytes that each cache keeps."""


class ByteCache:
    """Keeps items of `MAX_BYTES` in all; the least recently used go first. For any threads."""

    def __init__(self) -> None:
        self.size = 0
        self._items: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any], size_of: Callable[[Any], int]) -> Any:
        """Returns an item, which is made and kept if it is not there."""
        with self._lock:
            if key in self._items:
                self._items.move_to_end(key)
                return self._items[key][0]
        item = make()
        with self._lock:
            if key not in self._items:
                self._items[key] = item, size_of(item)
                self.size += self._items[key][1]
            while self.size > MAX_BYTES:
                self.size -= self._items.popitem(last=False)[1][1]
        return item


def read(url: str, settings: MediaSettings) -> bytes:
    """Returns what is at a `data:`, `file:` or `http(s):` URL or below the media root; blocks.

    Raises:
        MediaError: it is not allowed, not there, or too large.
    """
    scheme, colon, _ = url[:16].partition(":")
    scheme = scheme.lower() if colon else ""
    if scheme == "data":
        return from_data(url, settings)
    if scheme in ("http", "https"):
        if not settings.allow_remote_media:
            raise MediaError(
                f"'{display_url(url)}' is on another machine, and this server fetches nothing "
                "(--allow-remote-media); send the content as a data URI"
            )
        from .fetching import fetch

        return fetch(url, settings)
    if scheme == "file" or not colon or "/" in scheme:
        if settings.media_root is None:
            raise MediaError(
                f"'{display_url(url)}' names a file, and this server reads none (--media-root); "
                "send the content as a data URI"
            )
        return read_below(Path(settings.media_root), path_of(url), settings)
    raise MediaError(
        f"'{display_url(url)}' has the scheme '{scheme}'; use data, file, http or https"
    )


class MediaReader:
    """Gets pictures, videos and PDFs; every method blocks, and may be called in any thread.

    Each comes with a key, a hash of its content and of what was chosen: equal keys, equal pixels.

    Args:
        settings: limits, and where files may come from.
        page_size: width and height of the pages that the model was trained on, if that is known.
    """

    def __init__(self, settings: MediaSettings, page_size: tuple[int, int] | None = None) -> None:
        self.settings = settings
        self.processes = DecodeProcesses(settings)
        self.page_options = {} if page_size is None else {"within": page_size}
        self._cache = ByteCache()

    def picture(self, url: str) -> list[tuple[np.ndarray, str]]:
        """Returns the picture of a URL, uint8 `[height, width, 3]`, with its key.

        Raises:
            MediaError: it can't be had, or is refused.
            MediaBusyError: all processes that decode are taken.
        """
        key, media = self._decoded("picture", read(url, self.settings))
        return [(media.pictures[0], key)]

    def video(self, url: str, choose: Choose) -> list[tuple[Frames, str]]:
        """Returns the frames of a video that `choose` picks, with their key.

        Args:
            choose: ascending indices of frames, the same for a content; may raise `MediaError`.

        Raises:
            MediaError, MediaBusyError: as `picture`.
        """
        source = VideoBytes(b"")  # the content itself is not needed any more

        def answer(question: dict[str, Any]) -> dict[str, Any]:
            indices = choose(VideoInfo(source, **question["choose"]))
            return {"indices": [int(index) for index in indices]}

        key, media = self._decoded("video", read(url, self.settings), answer)
        report = media.report
        frames = Frames(media.pictures[0], report["indices"], VideoInfo(source, **report["info"]))
        chosen = hashlib.sha256(str(report["indices"]).encode()).hexdigest()
        return [(frames, f"{key}:{chosen[:16]}")]

    def pages(self, data_or_url: str) -> list[tuple[np.ndarray, str]]:
        """Returns the pages of a PDF, each `[height, width, 3]` with its key.

        Args:
            data_or_url: a URL, or the content in base64.

        Raises:
            MediaError, MediaBusyError: as `picture`.
        """
        is_url = ":" in data_or_url[:16]
        get = read if is_url else from_base64
        data = get(data_or_url, self.settings)
        key, media = self._decoded("pages", data, None, **self.page_options)
        return [(page, f"{key}:{number}") for number, page in enumerate(media.pictures, start=1)]

    def _decoded(
        self, decoder: str, data: bytes, answer: Answer | None = None, **options: Any
    ) -> tuple[str, DecodedMedia]:
        """Returns a key of a content, and what is decoded of it."""
        key = f"{decoder}:{hashlib.sha256(data).hexdigest()}"
        make = partial(self.processes.decode, decoder, data, answer, **options)
        return key, self._cache.get(key, make, lambda media: media.nbytes)


class ProcessedMedia:
    """Pixels as one processor gives them, by the content of what it was given. For one thread.

    Args:
        processor: of text and pixels; it looks here before it has pixels processed.

    Attributes:
        media_keys: content hashes of the request's media, in order; without, nothing is looked up.
    """

    def __init__(self, processor: Any) -> None:
        self.media_keys: tuple[str, ...] = ()
        self.cache = ByteCache()
        for kind in ("image_processor", "video_processor"):
            inner: Any = getattr(processor, kind, None)
            if (preprocess := getattr(inner, "preprocess", None)) is not None:
                inner.preprocess = partial(self._preprocess, kind, preprocess)

    def _preprocess(
        self, kind: str, preprocess: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """Stands for the method of a processor of pictures or clips that makes tensors of them."""
        if not self.media_keys or len(args) != 1:
            return preprocess(*args, **options)
        try:
            key = (kind, self.media_keys, pickle.dumps(options))
        except Exception:  # an option whose content is not known
            return preprocess(*args, **options)
        result = copy.copy(self.cache.get(key, partial(preprocess, *args, **options), _nbytes))
        result.data = dict(result.data)  # processors take entries out
        return result


def _nbytes(batch: Any) -> int:
    """Returns the bytes of a processor's tensors."""
    return sum(value.nbytes for value in batch.data.values() if isinstance(value, Tensor))
