"""Options of commands come from the fields of dataclasses, and become one again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from sooner.checks import check_fields, option
from sooner.cli.from_settings import Fields, described, from_settings, option_of
from sooner.cli.main import app as sooner
from sooner.errors import SoonerError
from sooner.serve.settings import ServeSettings
from sooner.tasks.imagine.settings import ImagineSettings
from sooner.tasks.parse.settings import ParseSettings
from sooner.tasks.settings import CaptionSettings


def halves(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


@dataclass(frozen=True)
class Inner:
    """Toy settings.

    Attributes:
        window: draft tokens a round, instead of
            `mean_length`.
        mode: how *fast*.
        mean_length, size: of all.

    Raises:
        SoonerError: a value out of range.
    """

    window: int | Literal["auto"] = option("auto")
    mode: str = option("slow", known=("slow", "fast"))
    mean_length: float | None = option(None, 0, metavar="F")
    size: tuple[int, ...] | None = option(None, parse=halves)
    is_quick: bool = False
    is_safe: bool = True
    hidden: int = 3

    def __post_init__(self) -> None:
        check_fields(self)


Name = Annotated[str, typer.Option("--called", help="A typer option.")]


@dataclass(frozen=True)
class Outer:
    """A command's own."""

    name: Name
    inner: Annotated[
        Inner, Fields(without=("hidden",), short={"window": "-w"}, env={"mode": "TOY_MODE"})
    ] = field(default_factory=Inner)


def run(*arguments: str, **options: Any) -> Any:
    made: list[Any] = []
    app = typer.Typer()

    @app.command()
    @from_settings
    def toy(
        *, outer: Outer, also: Annotated[Inner, Fields(only=("mode",))], quiet: bool = False
    ) -> None:
        """A toy."""
        made.extend((outer, also, quiet))

    result = CliRunner().invoke(app, list(arguments), **options)
    return made if made else result


def test_a_command_gets_what_its_options_make() -> None:
    assert run("--called", "a") == [Outer("a"), Inner(), False]
    arguments = ["-w", "7", "--mode", "fast", "--mean-length", "2", "--size", "3x4", "--is-quick"]
    made = run("--called", "b", *arguments, "--no-is-safe", "--quiet")
    inner = Inner(7, "fast", 2.0, (3, 4), is_quick=True, is_safe=False)
    assert made == [Outer("b", inner), Inner(mode="fast"), True]
    assert run("--called", "c", env={"TOY_MODE": "fast"})[0].inner.mode == "fast"


def test_what_is_wrong_is_refused_as_the_settings_do() -> None:
    for arguments, message in (
        (["--window", "many"], "window is 'many'; it must be 'auto' or a whole number"),
        (["--window", "0"], "window is 0; it must be 'auto' or a whole number of 1 or more"),
        (["--mode", "fats"], "did you mean 'fast'"),
    ):
        result = run("--called", "a", *arguments)
        assert isinstance(result.exception, SoonerError)
        assert message in str(result.exception)
    assert run().exit_code == 2  # --called is required
    assert run("--called", "a", "--hidden", "4").exit_code == 2


def test_help_is_the_docstrings() -> None:
    assert described(Inner)["size"] == described(Inner)["mean_length"] == "of all."
    window, mode = option_of(Inner, "window"), option_of(Inner, "mode")
    assert (window.help, window.metavar) == (
        "Draft tokens a round, instead of --mean-length.", "auto|N"
    )  # fmt: skip
    assert (mode.help, mode.metavar) == ("How fast. One of slow, fast.", "NAME")
    assert option_of(Inner, "mean_length").metavar == "F"


@pytest.mark.parametrize("kind", [CaptionSettings, ParseSettings, ImagineSettings, ServeSettings])
def test_every_setting_has_a_description(kind: type) -> None:
    assert [field.name for field in dataclasses.fields(kind)] == [
        field.name for field in dataclasses.fields(kind) if described(kind).get(field.name)
    ]


@pytest.mark.parametrize(
    ("command", "kind"),
    [("caption", CaptionSettings), ("parse", ParseSettings), ("imagine", ImagineSettings)],
)
def test_defaults_are_the_settings(command: str, kind: type) -> None:
    flags = {item.name: item for item in typer.main.get_command(sooner).commands[command].params}  # type: ignore[attr-defined]
    settings = [item for item in dataclasses.fields(kind) if item.name in flags]
    assert len(settings) >= 13
    for item in settings:
        assert flags[item.name].default == item.default, item.name
