"""`--config FILE`: options of a command from a file of YAML, TOML or JSON."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SoonerError, reason_of, unknown


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
    known = {name: option for option in options for name in _names(option)}
    values = {}
    for key, value in read_config(path).items():
        name = str(key).replace("_", "-")
        if name not in known:
            raise unknown(f"option in '{path}'", name, known)
        option: Any = known[name]
        if isinstance(value, list) and not option.multiple and option.nargs == 1:
            value = ",".join(map(str, value))
        values[option.name] = value
    ctx.default_map = values


def _names(option: Any) -> list[str]:
    """Returns the long names of an option; an argument has the one of its parameter."""
    flags = [flag.removeprefix("--") for flag in option.opts if flag.startswith("--")]
    return flags or [str(option.name).replace("_", "-")]


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
