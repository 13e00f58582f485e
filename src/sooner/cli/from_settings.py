"""Options of a command from the fields of dataclasses: type, default, help and range in one place.

    @from_settings
    def caption(*, settings: CaptionSettings, display: Display) -> None: ...

has an option for each field of `CaptionSettings`, and is called with one that is made of them. The
help is the docstring's. Every such command reads options from a file as well, `--config FILE`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..checks import Range, check_choice, described, field_types
from ..errors import SoonerError, reason_of

METAVARS = {int: "N", float: "X", str: "TEXT", bool: None}


@dataclasses.dataclass(frozen=True)
class Fields:
    """Says which fields of a dataclass become options; it is used in `Annotated` with the class.

    Attributes:
        only: these fields; by default all.
        without: fields that are left at their defaults.
        defaults: where a command has others than the class.
        only_explicit: the command gets a dict of the values that were set, instead of the class.
    """

    only: Collection[str] = ()
    without: Collection[str] = ()
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    only_explicit: bool = False

    def of(self, kind: Any) -> Iterator[tuple[dataclasses.Field[Any], Group | None]]:
        """Yields the chosen fields of a dataclass in its order, and of one that is a dataclass
        itself which of its fields are options."""
        hints = typing.get_type_hints(kind, include_extras=True)
        for item in dataclasses.fields(kind):
            if item.name not in self.without and (not self.only or item.name in self.only):
                yield item, _group(hints[item.name])


Group = tuple[Any, Fields]
"""A dataclass and which of its fields are options."""


def from_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with options instead of its parameters that are dataclasses.

    A field that is a dataclass stands for its own fields. Of options with the same name the first
    counts, for all.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    parameters: dict[str, inspect.Parameter] = {}
    groups: dict[str, Group] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if (group := _group(hints[name])) is None:
            parameters[name] = parameter.replace(annotation=hints[name])
        else:
            groups[name] = group
            for option in _parameters(*group):
                parameters.setdefault(option.name, option)
    plain = [name for name in hints if name in parameters]
    parameters["config"] = keyword("config", Config, None)

    @functools.wraps(command)
    def run(ctx: typer.Context, **inputs: Any) -> None:
        if inputs.get("debug"):
            log_decisions()
        made = {name: _build(*group, inputs, ctx) for name, group in groups.items()}
        command(**made, **{name: inputs[name] for name in plain})

    return with_parameters(run, parameters.values())


def with_parameters(
    run: Callable[..., None], parameters: Collection[inspect.Parameter]
) -> Callable[..., None]:
    """Returns a function of `ctx` and keywords with the signature that typer shall read."""
    every = [keyword("ctx", typer.Context), *parameters]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in every}
    return run


def keyword(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Returns a parameter of a command."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=hint)


def parameter(kind: Any, field: dataclasses.Field[Any], default: Any) -> inspect.Parameter:
    """Returns the option or argument of one field of settings."""
    hint: Any = Annotated[_plain(kind, field), option_of(kind, field.name)]
    if default is dataclasses.MISSING:
        return keyword(field.name, hint)
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    return keyword(field.name, hint, default)


def option_of(kind: type, name: str) -> Any:
    """Returns the typer option or argument of one field of settings, such as for `Annotated`."""
    (field,) = (item for item in dataclasses.fields(kind) if item.name == name)
    limits, parts = _range(field), field_types(kind)[name]
    metavar: str | None = METAVARS.get(parts[0], "TEXT")
    if limits.known:
        metavar = "NAME"
    elif words := [part for part in parts if isinstance(part, str)]:
        metavar = "|".join([*words, "N"])
    metavar, text = limits.metavar or metavar, _help(kind, field)
    if limits.positional:
        return typer.Argument(metavar=metavar, help=text)
    flag = f"--{name.replace('_', '-')}"
    names = limits.names or (f"{flag}/--no-{flag[2:]}" if field.default is True else flag,)
    return typer.Option(*names, metavar=metavar, help=text, envvar=limits.env)


def _help(kind: type, field: dataclasses.Field[Any]) -> str | None:
    """Returns what the docstring says, with options' names for fields' names, and the range."""
    limits, text = _range(field), described(kind).get(field.name, "")
    flags = {item.name: f"--{item.name.replace('_', '-')}" for item in dataclasses.fields(kind)}
    text = re.sub(r"`([^`]*)`", lambda match: flags.get(match[1], match[1]), text)
    text = text[:1].upper() + re.sub(r"\*(\w[^*]*)\*", r"\1", text[1:])
    if isinstance(limits.known, Mapping):
        text += f" {'; '.join(f'{known}: {summary}' for known, summary in limits.known.items())}."
    elif limits.known and not all(known in text for known in limits.known):
        text += f" One of {', '.join(limits.known)}."
    return f"{text} ({limits.bounds})" if limits.bounds else text or None


def _group(hint: Any) -> Group | None:
    """Returns the dataclass that a hint names; `None` if it is another hint."""
    kind, *extra = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    if not dataclasses.is_dataclass(kind):
        return None
    return kind, next((item for item in extra if isinstance(item, Fields)), Fields())


def _parameters(kind: Any, chosen: Fields) -> Iterator[inspect.Parameter]:
    for field, group in chosen.of(kind):
        if group is not None:
            yield from _parameters(*group)
        else:
            yield parameter(kind, field, chosen.defaults.get(field.name, field.default))


def _plain(kind: Any, field: dataclasses.Field[Any]) -> Any:
    """Returns the type that typer reads: a text where it is parsed later."""
    parts = field_types(kind)[field.name]
    is_text = any(isinstance(part, str) for part in parts) or _range(field).parse
    plain: Any = str if is_text else parts[0]
    return plain | None if types.NoneType in parts else plain


def _build(kind: Any, chosen: Fields, inputs: Mapping[str, Any], ctx: typer.Context) -> Any:
    values = dict(chosen.defaults)
    for field, group in chosen.of(kind):
        if group is not None:
            values[field.name] = _build(*group, inputs, ctx)
        elif not chosen.only_explicit or is_explicit(ctx, field.name):
            values[field.name] = parsed(kind, field, inputs[field.name])
    return values if chosen.only_explicit else kind(**values)


def parsed(kind: Any, field: dataclasses.Field[Any], value: Any) -> Any:
    """Returns the value of a field, made of what the command line has for it.

    Raises:
        SoonerError: a text that it can't be made of.
    """
    if not isinstance(value, str):
        return value
    limits = _range(field)
    words = [part for part in field_types(kind)[field.name] if isinstance(part, str)]
    if limits.parse is not None:
        return limits.parse(value)
    is_number = bool(words) and not limits.known and value.removeprefix("-").isdecimal()
    return int(value) if is_number else value  # what is neither is for the class to refuse


def is_explicit(ctx: typer.Context, name: str) -> bool:
    """Returns whether an option was set, by the command line, a variable or a file."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _range(field: dataclasses.Field[Any]) -> Range:
    limits: Range = field.metadata.get("range") or Range()
    return limits


def log_decisions() -> None:
    """Show what the engine logs, such as why a draft length was chosen."""
    import logging

    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("sooner").setLevel(logging.INFO)


def read_config(path: Path) -> Mapping[str, Any]:
    """Returns what a file holds: names of options, and their values.

    Raises:
        SoonerError: it can't be read, or is no mapping.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SoonerError(f"config '{path}' can't be read: {reason_of(error)}") from error
    if not isinstance(content, Mapping):
        raise SoonerError(f"config '{path}' holds no options; write one a line, as 'name: value'")
    return content


def _use_config(ctx: typer.Context, path: Path | None) -> None:
    """Let the options of a file stand where the command line has none.

    Raises:
        SoonerError: as `read_config`; an option that the command does not have, with the nearest.
    """
    if path is None:
        return
    options = [item for item in ctx.command.params if item.name not in ("config", "help")]
    known = {
        flag.lstrip("-").replace("_", "-"): option for option in options for flag in option.opts
    }
    values = {}
    for key, value in read_config(path).items():
        name = str(key).replace("_", "-")
        check_choice(f"option in '{path}'", name, known)
        option: Any = known[name]
        texts = [_as_text(item) for item in (value if isinstance(value, list) else [value])]
        is_single = not option.multiple and option.nargs == 1
        values[option.name] = None if value is None else ",".join(texts) if is_single else texts
    ctx.default_map = values


def _as_text(value: Any) -> str:
    """Returns a value of a file as the command line has it, so that it is parsed as strictly."""
    return json.dumps(value) if isinstance(value, Mapping | list) else str(value)


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_use_config,
        help="Options from a file of YAML or TOML, by their names; those given here win.",
    ),
]
