"""What the bench commands share: options, the run, printed tables, the JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.cli.display import Display
from sooner.cli.from_settings import log_decisions, option_of
from sooner.io import check_writable

if TYPE_CHECKING:
    from ..bench.result_file import ResultFile


def _check_json(value: Path | None) -> Path | None:
    if value is not None:
        check_writable(value)
    return value


Json = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Write the whole result here.", callback=_check_json
    ),
]
Add = Annotated[bool, typer.Option("--add", help="Keep what --json's FILE has of the other parts.")]
Debug = Annotated[bool, option_of(Display, "debug")]

WIDE = 140
"""Columns of a table that goes to a file or a pipe."""


def run_bench(
    run: Callable[..., dict[str, Any]],
    settings: Any,
    file: ResultFile,
    debug: bool,
    words: int = 2,
    **more: Any,
) -> dict[str, Any]:
    """Measure, print the tables, write the JSON and say so.

    Args:
        run: `(settings, progress=, **more) -> result` of the bench.
        file: gets the result; as `keep` it may have had its finished parts.
        words: leading columns of the tables that hold words; the others hold figures.
        more: what this bench's `run` takes besides, such as `keep`.
    """
    from ..bench.report import tables

    result = measured(partial(run, **more), settings, debug)
    show_tables(tables(result), words)
    if file.path is not None:
        file(result)
        typer.echo(f"wrote {file.path}", err=True)
    return result


def show_tables(tables: Sequence[Any], words: int) -> None:
    """Print tables.

    Args:
        tables: of `sooner_lab.bench.render.ReportTable`.
        words: leading columns that hold words and stand to the left.
    """
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    for source in tables:
        table = Table(title=source.title)
        for number, head in enumerate(source.heads):
            # Names that do not fit go on in the next line; by default rich would cut them.
            table.add_column(head, justify="left" if number < words else "right", overflow="fold")
        for row in source.rows:
            table.add_row(*row)
        console.print(table)


def measured(run: Callable[..., dict[str, Any]], settings: Any, debug: bool) -> dict[str, Any]:
    """Run a bench, telling its progress on a terminal; told to end, it ends what it started."""
    import transformers
    from rich.console import Console

    from sooner.interrupts import ended_as_interrupted
    from sooner.provenance import revision

    revision()  # the tree as it is now is the one that is measured
    if debug:
        log_decisions()
    else:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    console = Console(stderr=True)
    with ended_as_interrupted():
        if not console.is_terminal:
            return run(settings, progress=lambda line: None)
        with console.status("loading models") as status:
            return run(settings, progress=status.update)
