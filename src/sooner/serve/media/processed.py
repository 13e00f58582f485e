"""What a model's processors made of pictures and clips, for requests that show the same again."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from torch import Tensor

KEPT = 256 << 20
"""Bytes of pixels as the model takes them, that are kept."""
KINDS = ("image_processor", "video_processor")


class ProcessedMedia:
    """Pixels as one processor gives them, by the content of what it was given.

    For one thread. The least recently used go first.

    Args:
        kept: bytes.

    Attributes:
        shown: content hashes of the media of the request under way, in order; without any, nothing
            is looked up.
        made, reused: calls of the processors themselves, and those that they were spared.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self.kept, self.size = kept, 0
        self.shown: tuple[str, ...] = ()
        self.made = self.reused = 0
        self._held: OrderedDict[Any, Any] = OrderedDict()

    def put_into(self, processor: Any) -> None:
        """Let a processor of text and pixels ask here before it has pixels processed."""
        for kind in KINDS:
            if getattr(processor, kind, None) is not None:
                setattr(processor, kind, _Asked(self, kind, getattr(processor, kind)))

    def get(self, kind: str, process: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Returns what `process(*args, **options)` gives for the media that are shown."""
        key = None
        if self.shown and len(args) == 1:
            try:
                key = (kind, self.shown, _told(options))
            except TypeError:  # an option whose content can't be told
                key = None
        if key is None:
            self.made += 1
            return process(*args, **options)
        if key in self._held:
            self._held.move_to_end(key)
            self.reused += 1
        else:
            self.made += 1
            made = process(*args, **options)
            size = _nbytes(made)
            if size > self.kept:
                return made
            self._held[key] = made
            self.size += size
            while self.size > self.kept:
                self.size -= _nbytes(self._held.popitem(last=False)[1])
        found = copy.copy(self._held[key])
        found.data = dict(found.data)  # processors take entries out
        return found


class _Asked:
    """Stands for a processor of pictures or clips; whatever else it has, this has as well."""

    def __init__(self, media: ProcessedMedia, kind: str, own: Any) -> None:
        self._media, self._kind, self._own = media, kind, own

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._media.get(self._kind, self._own, args, options)

    def __copy__(self) -> Any:
        return copy.copy(self._own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def _nbytes(made: Any) -> int:
    return sum(one.nbytes for one in made.data.values() if isinstance(one, Tensor))


def _told(value: Any) -> Any:
    """Returns an option as something that is equal if the option is.

    Raises:
        TypeError: it is of a kind that only its maker can compare.
    """
    if value is None or isinstance(value, str | int | float | bool | Enum):
        return value
    if isinstance(value, Mapping):
        return tuple((name, _told(one)) for name, one in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(_told(one) for one in value)
    if dataclasses.is_dataclass(value):
        return type(value), _told(vars(value))
    raise TypeError(f"a {type(value).__name__}")
