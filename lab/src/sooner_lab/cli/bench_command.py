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

from sooner.cli import options
from sooner.cli.from_settings import _plain, described, option_of

from .bench_parts import Add, Json, keep_in, read_result, run_bench

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
        faults: `module:function` that returns a line for each fault of a result, in place of its
            own `broken` and `faults`.
    """

    name: str
    settings: str
    run: str
    words: int = 2
    adds: bool = False
    faults: str = ""

    def command(self) -> Callable[..., None]:
        """Return the function that typer makes a command of."""
        kind = _load(self.settings)
        full = getattr(kind, "FULL", {})

        def command(ctx: typer.Context, **inputs: Any) -> None:
            json = inputs["json"]
            given = {
                name: _parsed(kind, name, inputs[name])
                for name in kind.__dataclass_fields__
                if name in inputs and _is_given(ctx, name)
            }
            settings = kind(**{**(full if inputs.get("full") else {}), **given})
            run = _load(self.run)
            more: dict[str, Any] = {}
            if "keep" in inspect.signature(run).parameters:
                more["keep"] = keep_in(json)
            if inputs.get("add"):
                more["before"] = read_result(json, self.name)
            result = run_bench(run, settings, json, inputs["debug"], self.words, **more)
            for place in result.get("left_out", ()):
                typer.echo(f"left out for the budget: {place}", err=True)
            for fault in (faults := self._faults(result)):
                typer.echo(fault, err=True)
            if faults or any(_is_bug(row) for row in rows_of(result)):
                raise typer.Exit(1)

        parameters = [_keyword("ctx", typer.Context), *self._parameters(kind)]
        command.__name__ = self.name
        command.__doc__ = (kind.__doc__ or "").split("Attributes:")[0].strip()
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    def _faults(self, result: Mapping[str, Any]) -> list[str]:
        if self.faults:
            lines: list[str] = _load(self.faults)(result)
            return lines
        return [*result.get("broken", ()), *result.get("faults", ())]

    def _parameters(self, kind: Any) -> Iterator[inspect.Parameter]:
        base = _load("settings:BenchSettings").__dataclass_fields__  # which come last
        for field in sorted(dataclasses.fields(kind), key=lambda field: field.name in base):
            yield _parameter(kind, field)
        if full := getattr(kind, "FULL", {}):
            text = ", ".join(f"{name} {_text(value)}" for name, value in full.items())
            yield _keyword(
                "full", Annotated[bool, typer.Option("--full", help=f"More of it: {text}.")], False
            )
        yield _keyword("json", Json, None)
        if self.adds:
            yield _keyword("add", Add, False)
        yield _keyword("debug", options.Debug, False)


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


def _keyword(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=hint)


def _parameter(kind: Any, field: dataclasses.Field[Any]) -> inspect.Parameter:
    """Return the option of a field; a field of paths is the command's arguments."""
    if typing.get_type_hints(kind)[field.name] == tuple[Path, ...]:
        argument = typer.Argument(metavar="[FILE...]", help=described(kind)[field.name])
        return _keyword(field.name, Annotated[list[Path] | None, argument], None)
    choice: Any = Annotated[_plain(kind, field), option_of(kind, field.name)]
    is_list = isinstance(field.default, tuple)
    return _keyword(field.name, choice, _text(field.default) if is_list else field.default)


def _parsed(kind: Any, name: str, value: Any) -> Any:
    limits = kind.__dataclass_fields__[name].metadata.get("range")
    if limits is not None and limits.parse is not None:
        return limits.parse(value)
    return tuple(value) if isinstance(value, list) else value


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
