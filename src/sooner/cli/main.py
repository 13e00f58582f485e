"""`sooner`: the entry point, where every outcome becomes an exit code and every error one line.

Exit codes: 0 done, 1 a parity bug or a drafter's fault was found (or the reader of the output left,
as `head` does), 2 bad input or usage, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import typer

from ..errors import SoonerError
from ..plugins import plugins
from . import BAD, DONE, INTERRUPTED

# Modules with a group `commands`, or with a function of their name.
PARTS = (
    "caption", "chat", "imagine", "act", "parse", "serve", "demo", "search", "verify", "doctor",
    "train",
)  # fmt: skip


@cache
def build_app(only: str | None = None) -> typer.Typer:
    """Returns the application with all commands, those of other distributions among them.

    Args:
        only: one of `PARTS`, if no other is needed: less is imported then.
    """
    app = typer.Typer(
        name="sooner",
        help="The same tokens, sooner: exact speculative decoding for multimodal models.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",  # as docstrings are; rich's own would eat 'sooner[demo]'
    )
    app.callback(invoke_without_command=True)(root)
    for name in PARTS if only is None else (only,):
        part = import_module(f".{name}", __package__)
        if hasattr(part, "commands"):
            app.add_typer(part.commands, name=name)
        else:
            app.command(name=name)(getattr(part, name))
    if only is None:
        for plugin in plugins("sooner.commands"):
            plugin.register(app)
    return app


def __getattr__(name: str) -> Any:
    if name == "app":
        return build_app()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def root(
    version: bool = typer.Option(False, "--version", help="Print the version and leave."),
) -> None:
    """Decode multimodal models faster by exact speculation: the same tokens, sooner."""
    if version:
        from .. import __version__

        typer.echo(f"sooner {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code; `--debug` shows tracebacks."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str]) -> int:
    first = arguments[0] if arguments else ""
    app = build_app(first if first in PARTS else None)
    command = typer.main.get_command(app)
    try:
        code = command.main(args=list(arguments), prog_name="sooner", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if "--debug" in arguments:
            raise
        return _explain(error)
    return code if isinstance(code, int) else DONE


def _explain(error: Exception) -> int:
    """Print one line about an error; returns the exit code."""
    usage = getattr(error, "format_message", None)  # the argument parser's own errors
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(usage() if usage else str(error))
    elif usage is not None:
        _complain(f"{' '.join(usage().split())} (see --help)")
    elif isinstance(error, SoonerError):
        _complain(str(error))
    else:
        text = " ".join(str(error).split())
        _complain(f"{type(error).__name__}: {text} (unexpected; --debug shows where)")
    return BAD


def _complain(line: str) -> None:
    typer.echo(f"sooner: {line}", err=True)
