"""What the bench commands share: options, the run, printed tables, the JSON, the exit code.

A command declares its options, makes the bench's settings of them and calls `run_bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from json import loads as parse_json
from pathlib import Path
from typing import Annotated, Any

import typer

from sooner.checks import check_whole
from sooner.cli import options
from sooner.cli.from_settings import option_of
from sooner.errors import SoonerError, unknown
from sooner.io import check_writable
from sooner.tasks.settings import CaptionSettings


def _check_count(param: typer.CallbackParam, value: int | None) -> int | None:
    if value is not None:
        check_whole(param.opts[0], value)
    return value


def _check_json(value: Path | None) -> Path | None:
    if value is not None:
        check_writable(value)
    return value


def count(text: str, metavar: str = "N") -> Any:
    """An option whose value is a whole number of 1 or more; `text` is its help."""
    return typer.Option(metavar=metavar, help=text, callback=_check_count)


def listed(text: str) -> Any:
    """An option whose value is a list of names that commas separate; `text` is its help."""
    return typer.Option(metavar="A,B,...", help=text)


Videos = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE...]", help="Videos; by default held-out rendered clips."),
]
Arms = Annotated[str | None, listed("Only these arms (plain is always in).")]
Repeats = Annotated[int, count("Timed runs of each arm.")]
MaxNewTokens = Annotated[int, count("Where an answer is cut.")]
Prune = Annotated[float | None, option_of(CaptionSettings, "prune")]
Placement = Annotated[str, option_of(CaptionSettings, "placement")]
NumDraftTokens = Annotated[int, count("Of the `speculative` arm.")]
OneThread = Annotated[int, count("torch threads.")]
SEED = 20_261_121
ClipSeed = Annotated[int, typer.Option(metavar="S", help="Of the rendered clips.")]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Write the whole result here.", callback=_check_json
    ),
]
Add = Annotated[bool, typer.Option("--add", help="Keep what --json's FILE has of the other parts.")]

Dataset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FOLDER",
        help="Samples of VideoDetailCaption, VideoMME, MVBench, MLVU, LongVideoBench, ...; of a "
        "local copy: its folder, or NAME=FOLDER.",
    ),
]
MinSeconds = Annotated[
    float | None,
    typer.Option(metavar="S", help="Leave out shorter videos of a dataset; by default 60."),
]

Retention = Annotated[
    float,
    typer.Option(
        metavar="SHARE", help="Mean share of the visual tokens that lossy arms keep, over layers."
    ),
]

WIDE = 140
"""Columns of a table that goes to a file or a pipe."""


def read_result(path: Path | None, bench: str, option: str = "--add") -> dict[str, Any]:
    """The earlier result that an option needs.

    Args:
        path: of an earlier `--json`.
        bench: the command that wrote it.
        option: what needs it.

    Raises:
        SoonerError: no file was named, or it holds no result of that command.
    """
    if path is None or not path.is_file():
        raise SoonerError(f"{option} needs the FILE of an earlier --json, not {str(path)!r}")
    try:
        result = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SoonerError(f"'{path}' is no result of this command: {error}") from error
    if not isinstance(result, dict) or result.get("bench") != bench:
        raise SoonerError(f"'{path}' is no result of this command")
    return result


def run_bench(
    run: Callable[..., dict[str, Any]],
    settings: Any,
    json: Path | None,
    debug: bool,
    words: int = 2,
    **more: Any,
) -> dict[str, Any]:
    """Measure, print the tables, write the JSON and say so.

    Args:
        run: `(settings, progress=, **more) -> result` of the bench.
        words: leading columns of the tables that hold words; the others hold figures.
        more: what this bench's `run` takes besides, such as `keep`.
    """
    from ..bench.report import tables
    from ..bench.result_file import write_result

    result = measured(partial(run, **more), settings, debug)
    show_tables(tables(result), words)
    if json is not None:
        write_result(result, json)
        typer.echo(f"wrote {json}", err=True)
    return result


def keep_in(json: Path | None) -> Callable[[dict[str, Any]], None]:
    """What writes a result as far as it is, so that an interrupted run leaves its finished parts.

    Args:
        json: the file; `None` keeps nothing.
    """
    from ..bench.result_file import write_result

    def keep(result: dict[str, Any]) -> None:
        if json is not None:
            write_result(result, json)

    return keep


def exit_on_bugs(rows: Iterable[dict[str, Any]]) -> None:
    """Exit with 1 where a row of an exact arm differs from plain decoding by more than a tie."""
    if any(row.get("parity") == "bug" or row.get("bugs") for row in rows):
        raise typer.Exit(1)


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


def some_of(what: str, text: str | None, known: Sequence[str], always: str = "") -> tuple[str, ...]:
    """The names of a list that commas separate, in the order of `known`; `always` is in any case.

    Raises:
        SoonerError: a name that is not known.
    """
    if text is None:
        return tuple(known)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise unknown(what, name, known)
    return tuple(name for name in known if name in names or name == always)


def numbers(what: str, text: str, example: str) -> tuple[int, ...]:
    """The numbers of a list that commas separate, ascending, each once.

    Raises:
        SoonerError: no numbers, or one below 1.
    """
    try:
        values = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise SoonerError(f"--{what} is '{text}'; give numbers such as {example}") from error
    if not values:
        raise SoonerError(f"--{what} is empty; give numbers such as {example}")
    for number in values:
        check_whole(f"--{what}", number)
    return tuple(values)


def measured(run: Callable[..., dict[str, Any]], settings: Any, debug: bool) -> dict[str, Any]:
    """Run a bench, telling its progress on a terminal; told to end, it ends what it started."""
    import transformers
    from rich.console import Console

    from sooner.interrupts import ended_as_interrupted
    from sooner.provenance import revision

    revision()  # the tree as it is now is the one that is measured
    if debug:
        options.log_decisions()
    else:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    console = Console(stderr=True)
    with ended_as_interrupted():
        if not console.is_terminal:
            return run(settings, progress=lambda line: None)
        with console.status("loading models") as status:
            return run(settings, progress=status.update)


def videos(files: list[Path] | None, dataset: str | None) -> list[Path]:
    """The videos that were named.

    Raises:
        SoonerError: a path without videos, or files beside a dataset.
    """
    from sooner.tasks.identity import find

    if files and dataset is not None:
        raise SoonerError(f"files and --dataset {dataset} exclude each other; give one of them")
    return find(files) if files else []


def full_clips(dataset: str | None) -> int:
    """Clips of a `--full` run; of a dataset as many as the paper takes."""
    from ..datasets.loading import SAMPLES

    return 12 if dataset is None else SAMPLES
