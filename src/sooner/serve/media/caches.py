"""What was made of pictures and clips last, for requests that show the same again."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from typing import Any

from torch import Tensor

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
            key = (kind, self.media_keys, _hashable(options))
        except TypeError:  # an option whose content can't be told
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


def _hashable(value: Any) -> Any:
    """Returns an option as something that is equal if the option is.

    Raises:
        TypeError: it is of a kind that only its maker can compare.
    """
    if value is None or isinstance(value, str | int | float | bool | Enum):
        return value
    if isinstance(value, Mapping):
        return tuple((name, _hashable(item)) for name, item in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(_hashable(item) for item in value)
    if dataclasses.is_dataclass(value):
        return type(value), _hashable(vars(value))
    raise TypeError(f"a {type(value).__name__}")
