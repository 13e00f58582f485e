"""What all recipes share: made from plain data, kept as it, and the options of a run."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

from sooner.errors import unknown

T = TypeVar("T")


class Options(TypedDict, total=False):
    """How a recipe is run; what is left out has `train`'s default."""

    resume: bool
    threads: int | None
    progress: bool
    stop_after: int | None
    on_step: Callable[[dict[str, Any]], None] | None


def plain(config: Any) -> dict[str, Any]:
    """A recipe as JSON holds it."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def from_plain(kind: type[T], options: Mapping[str, Any]) -> T:
    """A recipe, or a part of one, from plain data (JSON, TOML); the way back from `plain`.

    Args:
        kind: its dataclass. Fields that are dataclasses, and tuples of these, are made likewise.
        options: fields by name; those left out have their defaults.

    Raises:
        SoonerError: a key that is no field's name.
    """
    hints = typing.get_type_hints(kind)
    for key in options:
        if key not in hints:
            raise unknown(f"{kind.__name__} option", str(key), list(hints))
    return kind(**{key: _convert(hints[key], value) for key, value in options.items()})


def _convert(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_plain(typing.cast(type, hint), value)
    if typing.get_origin(hint) is tuple and isinstance(value, list | tuple):
        kinds = typing.get_args(hint)
        if kinds[-1] is Ellipsis:
            kinds = kinds[:1] * len(value)
        return tuple(_convert(*pair) for pair in zip(kinds, value, strict=True))
    return value
