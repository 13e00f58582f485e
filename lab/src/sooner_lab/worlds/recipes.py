"""What all recipes share: made from plain data, and run by one call."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from sooner.errors import unknown

if typing.TYPE_CHECKING:
    from .lessons import Lesson

T = TypeVar("T")


class Options(TypedDict, total=False):
    """How a recipe is run; what is left out has `train`'s default."""

    resume: bool
    threads: int | None
    progress: bool
    stop_after: int | None
    on_step: Callable[[dict[str, Any]], None] | None


def train(
    out: Path,
    config: Any,
    lesson: Lesson,
    fixed: tuple[str, ...],
    *,
    resume: bool = True,
    threads: int | None = None,
    progress: bool = True,
    stop_after: int | None = None,
    on_step: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Train one part of a miniature and write its checkpoint folder.

    Args:
        out: folder that receives `checkpoint/` (what `from_pretrained` reads, with its `card.json`:
            held-out figures, sizes, times, versions), `state.pt` (all that resuming needs) and
            `log.jsonl` (a line per report).
        config: the recipe.
        lesson: what is taught.
        fixed: fields of `config` in which a resumed run must agree.
        resume: go on from `state.pt` if there is one. The resumed run makes the same steps as an
            uninterrupted one. False starts anew.
        threads: torch threads for this run; None leaves them as they are.
        progress: show a progress line.
        stop_after: leave after this many steps in this call, with `state.pt` written.
        on_step: called after each step with `{"stage", "kind", "step", "steps", "loss", ...}`.

    Returns:
        The checkpoint folder. It exists only once every stage is done, unless `stop_after` ended
        the call early.

    Raises:
        SoonerError: `state.pt` is of another recipe; the error says how to go on.
    """
    from .lessons import Trainer

    trainer = Trainer(
        out, config, lesson, fixed, threads=threads, progress=progress, on_step=on_step
    )
    if resume:
        trainer.resume()
    return trainer.run(stop_after)


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
