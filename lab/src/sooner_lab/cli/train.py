"""`sooner train miniature`: a miniature from its recipe."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from sooner.cli.train import commands
from sooner.errors import SoonerError, unknown

from .. import worlds as miniatures
from ..worlds import WORLDS


def register(_app: typer.Typer) -> None:
    """Add the subcommand to the group `sooner train`."""
    commands.command()(miniature)


def miniature(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Such as: document, image, motion, robot, video.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="By default miniature-NAME, here.")
    ] = None,
    part: Annotated[
        str | None, typer.Option(metavar="PART", help="Only this part, such as: target.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on from the last saved state, or anew.")
    ] = True,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Torch threads.")] = None,
    stop_after: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Leave after this many steps of a part.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Train the parts of a miniature in order; interrupted runs go on where they were saved."""
    recipes = find_recipe(name).RECIPES
    parts = tuple(recipes)
    if part is not None and part not in parts:
        raise unknown("part", part, parts)
    train = _module(name, "train").train
    folder = out if out is not None else Path(f"miniature-{name}")
    for stage in parts if part is None else (part,):
        try:
            (folder / stage).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SoonerError(f"folder '{folder}' can't be written: {error.strerror}") from error
        made = train(
            folder / stage,
            recipes[stage],
            resume=resume,
            threads=threads,
            progress=not quiet,
            stop_after=stop_after,
        )
        typer.echo(f"{stage}: {made}" if made.exists() else f"{stage}: stopped; --resume goes on")


def find_recipe(name: str) -> Any:
    """The recipe module of a miniature.

    Raises:
        SoonerError: no miniature of this name.
    """
    if name not in WORLDS:
        raise unknown("miniature", name, WORLDS)
    return _module(name, "recipe")


def _module(name: str, part: str) -> Any:
    return importlib.import_module(f"{miniatures.__name__}.{name}.{part}")
