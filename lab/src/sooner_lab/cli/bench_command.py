"""Makes a command of a bench from its settings: an option for each field, the run, the JSON."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from sooner.checks import described
from sooner.cli.from_settings import (
    Config,
    is_explicit,
    keyword,
    parameter,
    parsed,
    with_parameters,
)

from ..bench.result_file import ResultFile, read_result
from .bench_parts import Add, Debug, Json, run_bench

PACKAGE = "sooner_lab.bench"


@dataclasses.dataclass(frozen=True)
class Bench:
    """A bench that is a command.

    Attributes:
        name: of the command.
        settings: `module:class` of its settings, below `sooner_lab.bench`; its docstring and its
            fields are the command's help and options.
        run: `module:function`, `(settings, progress, keep) -> result`.
        words: leading columns of its tables that hold words.
        adds: whether `run` takes `before`, a result to which it adds parts.
    """

    name: str
    settings: str
    run: str
    words: int = 2
    adds: bool = False

    def command(self) -> Callable[..., None]:
        """Return the function that typer makes a command of."""
        kind = _load(self.settings)
        full = getattr(kind, "FULL", {})

        def command(ctx: typer.Context, **inputs: Any) -> None:
            json = inputs["json"]
            file = ResultFile(json, self.name)
            given = {
                field.name: _parsed(kind, field, inputs[field.name])
                for field in dataclasses.fields(kind)
                if field.name in inputs and is_explicit(ctx, field.name)
            }
            settings = kind(**{**(full if inputs.get("full") else {}), **given})
            run = _load(self.run)
            more: dict[str, Any] = {}
            if "keep" in inspect.signature(run).parameters:
                more["keep"] = file
            if inputs.get("add"):
                more["before"] = read_result(json, self.name)
            result = run_bench(run, settings, file, inputs["debug"], self.words, **more)
            for fault in (faults := [*result.get("broken", ()), *result.get("faults", ())]):
                typer.echo(fault, err=True)
            if faults or any(_is_bug(row) for row in rows_of(result)):
                raise typer.Exit(1)

        command.__name__ = self.name
        command.__doc__ = (kind.__doc__ or "").split("Attributes:")[0].strip()
        return with_parameters(command, list(self._parameters(kind)))

    def _parameters(self, kind: Any) -> Iterator[inspect.Parameter]:
        base = _load("settings:BenchSettings").__dataclass_fields__  # which come last
        for field in sorted(dataclasses.fields(kind), key=lambda field: field.name in base):
            yield _parameter(kind, field)
        if full := getattr(kind, "FULL", {}):
            text = ", ".join(f"{name} {_text(value)}" for name, value in full.items())
            yield keyword(
                "full", Annotated[bool, typer.Option("--full", help=f"More of it: {text}.")], False
            )
        yield keyword("json", Json, None)
        if self.adds:
            yield keyword("add", Add, False)
        yield keyword("debug", Debug, False)
        yield keyword("config", Config, None)


def _is_bug(row: Mapping[str, Any]) -> bool:
    """Return whether an exact arm differs from plain decoding by more than a tie, or a law is
    broken."""
    return row.get("parity") == "bug" or bool(row.get("bugs")) or row.get("holds") is False


def rows_of(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every row of a result's lists, those one level down among them."""
    for value in result.values():
        part = value.get("rows") if isinstance(value, dict) else value
        if isinstance(part, list):
            yield from (row for row in part if isinstance(row, dict))


def _load(path: str) -> Any:
    module, name = path.split(":")
    return getattr(import_module(f"{PACKAGE}.{module}"), name)


def _parameter(kind: Any, field: dataclasses.Field[Any]) -> inspect.Parameter:
    """Return the option of a field; a field of paths is the command's arguments."""
    if typing.get_type_hints(kind)[field.name] == tuple[Path, ...]:
        argument = typer.Argument(metavar="[FILE...]", help=described(kind)[field.name])
        return keyword(field.name, Annotated[list[Path] | None, argument], None)
    return parameter(kind, field, field.default)


def _parsed(kind: Any, field: dataclasses.Field[Any], value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else parsed(kind, field, value)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
