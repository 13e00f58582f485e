"""`sooner show`: a picture of a model's sparse patterns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .display import Display

commands = options.command_group("Draw what was searched.")


@commands.command()
def patterns(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Of `sooner search patterns`.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="PICTURE", help="A .png or .svg; else both."),
    ] = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Draw the pattern of every head, coloured by its kind."""
    from ..sparse.search.pictures import save, table_figure
    from ..sparse.table import PatternTable

    table = PatternTable.load(file)
    for path in save(lambda: table_figure(table), output or Path(file.stem)):
        Display(quiet).line(f"  saved '{path}'", "bold")
