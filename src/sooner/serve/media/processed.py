"""What a model's processors made of pictures and clips, for requests that show the same again."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from torch import Tensor

MAX_BYTES = 256 << 20
"""Bytes of pixels as the model takes them, that are kept."""
KINDS = ("image_processor", "video_processor")


class ProcessedMedia:
    """Pixels as one processor gives them, by the content of what it was given.

    For one thread. The least recently used go first.

    Args:
        kept: bytes.

    Attributes:
        media_keys: content hashes of the media of the request under way, in order; without any,
            nothing is looked up.
        made, reused: calls of the processors themselves, and those that they were spared.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes, self.size = max_bytes, 0
        self.media_keys: tuple[str, ...] = ()
        self.made = self.reused = 0
        self._items: OrderedDict[Any, Any] = OrderedDict()

    def put_into(self, processor: Any) -> None:
        """Let a processor of text and pixels ask here before it has pixels processed."""
        for kind in KINDS:
            if getattr(processor, kind, None) is not None:
                setattr(processor, kind, _CachedProcessor(self, kind, getattr(processor, kind)))

    def get(self, kind: str, process: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Returns what `process(*args, **options)` gives for the media that are shown."""
        key = None
        if self.media_keys and len(args) == 1:
            try:
                key = (kind, self.media_keys, _hashable(options))
            except TypeError:  # an option whose content can't be told
                key = None
        if key is None:
            self.made += 1
            return process(*args, **options)
        if key in self._items:
            self._items.move_to_end(key)
            self.reused += 1
        else:
            self.made += 1
            made = process(*args, **options)
            size = _nbytes(made)
            if size > self.max_bytes:
                return made
            self._items[key] = made
            self.size += size
            while self.size > self.max_bytes:
                self.size -= _nbytes(self._items.popitem(last=False)[1])
        result = copy.copy(self._items[key])
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


def _nbytes(made: Any) -> int:
    return sum(tensor.nbytes for tensor in made.data.values() if isinstance(tensor, Tensor))


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
