"""`sooner show`: a picture of a model's sparse patterns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .display import Display
from .from_settings import from_settings

commands = typer.Typer(help="Draw what was searched.", no_args_is_help=True)


@commands.command()
@from_settings
def patterns(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Of `sooner search patterns`.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="PICTURE", help="A .png or .svg; else both."),
    ] = None,
    display: Display,
) -> None:
    """Draw the pattern of every head, coloured by its kind."""
    from ..sparse.search.pictures import save, table_figure
    from ..sparse.table import PatternTable

    table = PatternTable.load(file)
    for path in save(lambda: table_figure(table), output or Path(file.stem)):
        display.line(f"  saved '{path}'", "bold")
