"""A command's options from the fields of dataclasses: type, default, help and range in one place.

    @from_settings
    def caption(*, settings: CaptionSettings, quiet: options.Quiet = False) -> None: ...

has an option for each field of `CaptionSettings`, and is called with one that is made of them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any

import typer
from typer.models import ParameterInfo

from ..checks import Range, field_types, parse_whole_or

METAVARS = {int: "N", float: "X", str: "TEXT", bool: None}


@dataclasses.dataclass(frozen=True)
class Fields:
    """Says which fields of a dataclass become options, and how; it is used in `Annotated` with the
    class.

    Attributes:
        only: these fields; by default all.
        without: fields that are left at their defaults.
        defaults: where a command has others than the class.
        short: a short name as well.
        env: a variable of the environment as well.
    """

    only: Collection[str] = ()
    without: Collection[str] = ()
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    short: Mapping[str, str] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def of(self, kind: Any) -> list[dataclasses.Field[Any]]:
        names = self.only or [item.name for item in dataclasses.fields(kind)]
        selected = [name for name in names if name not in self.without]
        return [item for item in dataclasses.fields(kind) if item.name in selected]


def from_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with options instead of its parameters that are dataclasses.

    A field whose type is `Annotated` with a typer option is that option; one that is a dataclass
    stands for its own fields. Of options with the same name the first counts, for all.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    parameters: dict[str, inspect.Parameter] = {}
    groups: dict[str, tuple[Any, Fields]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if (group := _group(hints[name])) is None:
            parameters[name] = parameter.replace(annotation=hints[name])
        else:
            groups[name] = group
            for option in _parameters(*group):
                parameters.setdefault(option.name, option)
    plain = [name for name in hints if name in parameters]

    @functools.wraps(command)
    def run(**inputs: Any) -> None:
        made = {name: _build(*group, inputs) for name, group in groups.items()}
        command(**made, **{name: inputs[name] for name in plain})

    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: option.annotation for name, option in parameters.items()}
    return run


def option_of(kind: type, name: str, short: str | None = None, env: str | None = None) -> Any:
    """Returns the typer option of one field of settings, such as for `Annotated`."""
    (field,) = (item for item in dataclasses.fields(kind) if item.name == name)
    limits, parts = _range(field), field_types(kind)[name]
    flag = f"--{name.replace('_', '-')}"
    if parts == (bool,) and field.default:
        flag += f"/--no-{flag[2:]}"
    if any(isinstance(part, str) for part in parts):
        metavar: str | None = "|".join((*(part for part in parts if isinstance(part, str)), "N"))
    else:
        metavar = "NAME" if limits and limits.known else METAVARS.get(parts[0], "TEXT")
    metavar = (limits and limits.metavar) or metavar
    text = _help(kind, name)
    if limits and isinstance(limits.known, Mapping):
        text += f" {'; '.join(f'{known}: {summary}' for known, summary in limits.known.items())}."
    elif limits and not all(known in text for known in limits.known):
        text += f" One of {', '.join(limits.known)}."
    names = (flag,) if short is None else (short, flag)
    return typer.Option(*names, metavar=metavar, help=text or None, envvar=env)


def _help(kind: type, name: str) -> str:
    """Returns what the docstring says, with the options' names for those of the fields."""
    text = described(kind).get(name, "")
    flags = {item.name: f"--{item.name.replace('_', '-')}" for item in dataclasses.fields(kind)}
    text = re.sub(r"`([^`]*)`", lambda match: flags.get(match[1], match[1]), text)
    return text[:1].upper() + text[1:].replace("*", "")


@functools.cache
def described(kind: type) -> Mapping[str, str]:
    """Returns what the docstrings of a class and its bases say of each of its fields, in
    one line.
    """
    texts: dict[str, str] = {}
    for base in kind.__bases__:
        texts.update(described(base))
    text = inspect.cleandoc(kind.__dict__.get("__doc__") or "")
    section = re.search(r"^(?:Attributes|Args):\n((?: .*\n|\n)*)", text + "\n", re.M)
    entries = re.finditer(
        r"^ {4}(\w[\w, ]*): ((?:.*\n)(?: {8}.*\n)*)", section[1] if section else "", re.M
    )
    for names, summary in (entry.groups() for entry in entries):
        texts.update(dict.fromkeys(names.split(", "), " ".join(summary.split())))
    return texts


def _group(hint: Any) -> tuple[Any, Fields] | None:
    """Returns a dataclass and which of its fields; `None` if the hint is another."""
    kind, *extra = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    if not dataclasses.is_dataclass(kind):
        return None
    return kind, next((item for item in extra if isinstance(item, Fields)), Fields())


def _parameters(kind: Any, chosen: Fields) -> Iterator[inspect.Parameter]:
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in chosen.of(kind):
        hint, name = hints[field.name], field.name
        if (group := _group(hint)) is not None:
            yield from _parameters(*group)
            continue
        default = chosen.defaults.get(name, field.default)
        if not any(isinstance(part, ParameterInfo) for part in typing.get_args(hint)):
            option = option_of(kind, name, chosen.short.get(name), chosen.env.get(name))
            hint = Annotated[_plain(kind, field), option]
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is dataclasses.MISSING else default,
            annotation=hint,
        )


def _plain(kind: Any, field: dataclasses.Field[Any]) -> Any:
    """Returns the type that typer reads: a text where it is parsed later."""
    limits, parts = _range(field), field_types(kind)[field.name]
    is_text = any(isinstance(part, str) for part in parts) or (limits and limits.parse)
    plain: Any = str if is_text else parts[0]
    return plain | None if types.NoneType in parts else plain


def _build(kind: Any, chosen: Fields, inputs: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(kind, include_extras=True)
    values = {}
    for field in chosen.of(kind):
        group = _group(hints[field.name])
        value = _build(*group, inputs) if group is not None else inputs[field.name]
        if isinstance(value, str) and (limits := _range(field)) is not None:
            words = [part for part in field_types(kind)[field.name] if isinstance(part, str)]
            if limits.parse is not None:
                value = limits.parse(value)
            elif words:
                value = parse_whole_or(field.name, value, words[0])
        values[field.name] = value
    return kind(**values)


def _range(field: dataclasses.Field[Any]) -> Range | None:
    return field.metadata.get("range")
