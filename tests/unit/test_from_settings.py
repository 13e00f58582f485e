"""Options of commands come from the fields of dataclasses, and become one again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from sooner.checks import REQUIRED, check_fields, described, option
from sooner.cli.from_settings import Fields, from_settings, option_of
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

    window: int | Literal["auto"] = option("auto", names=("-w", "--window"))
    mode: str = option("slow", known=("slow", "fast"), env="TOY_MODE")
    mean_length: float | None = option(None, 0, metavar="F")
    size: tuple[int, ...] | None = option(None, parse=halves)
    is_quick: bool = False
    is_safe: bool = True
    hidden: int = 3

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Outer:
    """A command's own.

    Attributes:
        files: what it works on.
        name: of it.
    """

    name: str = option(REQUIRED, names=("--called",))
    files: list[str] | None = option(None, metavar="[FILE...]", positional=True)
    inner: Annotated[Inner, Fields(without=("hidden",))] = field(default_factory=Inner)


def run(*arguments: str, **options: Any) -> Any:
    made: list[Any] = []
    app = typer.Typer()

    @app.command()
    @from_settings
    def toy(
        *,
        outer: Outer,
        also: Annotated[Inner, Fields(only=("mode",))],
        given: Annotated[Inner, Fields(without=("hidden",), only_explicit=True)],
        quiet: bool = False,
    ) -> None:
        """A toy."""
        made.extend((outer, also, quiet, given))

    result = CliRunner().invoke(app, list(arguments), **options)
    return made if made else result


def test_a_command_gets_what_its_options_make() -> None:
    assert run("--called", "a") == [Outer("a"), Inner(), False, {}]
    arguments = ["-w", "7", "--mode", "fast", "--mean-length", "2", "--size", "3x4", "--is-quick"]
    made = run("one", "two", "--called", "b", *arguments, "--no-is-safe", "--quiet")
    inner = Inner(7, "fast", 2.0, (3, 4), is_quick=True, is_safe=False)
    assert made[:3] == [Outer("b", ["one", "two"], inner), Inner(mode="fast"), True]
    assert made[3] == {name: value for name, value in vars(inner).items() if name != "hidden"}
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
    length = option_of(Inner, "mean_length")
    assert (length.help, length.metavar) == ("Of all. (0 or more)", "F")


CONFIGS = {
    "toy.yaml": "called: c\nwindow: 7\nmean-length: 2\nis_quick: true\nis-safe: false\n",
    "toy.toml": 'called = "c"\nwindow = 7\nmean-length = 2\nis_quick = true\nis-safe = false\n',
    "toy.json": '{"called": "c", "window": 7, "mean_length": 2, "is-quick": true, "is-safe": "no"}',
}


@pytest.mark.parametrize("name", CONFIGS)
def test_options_come_from_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(CONFIGS[name])
    outer, _, _, given = run("--config", str(path), "--window", "9", "-w", "8")
    assert outer.name == "c"
    assert outer.inner == Inner(8, mean_length=2.0, is_quick=True, is_safe=False)
    assert given == {"window": 8, "mean_length": 2.0, "is_quick": True, "is_safe": False}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windwo: 7", "unknown option in '{path}' 'windwo' (did you mean 'window'?)"),
        ("window: many", "window is 'many'; it must be 'auto' or a whole number"),
        ("window: 1.5", "window is '1.5'; it must be 'auto' or a whole number"),
        ("mean-length: long", "Invalid value for '--mean-length'"),
        ("mean-length: {a: 1}", "Invalid value for '--mean-length'"),
        ("config: other.yaml", "unknown option in '{path}' 'config'"),
        ("- window", "config '{path}' holds no options"),
        ("window: [", "config '{path}' can't be read: while parsing"),
    ],
)
def test_a_file_that_is_wrong_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(text)
    result = run("--called", "a", "--config", str(path))
    assert message.format(path=path) in f"{result.exception} {result.output}"
    missing = run("--called", "a", "--config", str(tmp_path / "no.yaml"))
    assert "can't be read: No such file" in str(missing.exception)


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
