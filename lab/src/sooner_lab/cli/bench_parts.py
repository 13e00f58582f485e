"""What the bench commands share: options, runs in parts, printed tables."""

from __future__ import annotations

from collections.abc import Sequence
from json import loads as parse_json
from pathlib import Path
from typing import Annotated, Any

import typer

from sooner.checks import check_whole
from sooner.cli import options
from sooner.errors import SoonerError, unknown

Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the whole result here.")
]

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
Add = Annotated[bool, typer.Option("--add", help="Keep what --json's FILE has of the other parts.")]


def read_result(path: Path | None, bench: str) -> dict[str, Any]:
    """The result that `--add` adds to.

    Args:
        path: of an earlier `--json`.
        bench: the command that wrote it.

    Raises:
        SoonerError: no file was named, or it holds no result of that command.
    """
    if path is None or not path.is_file():
        raise SoonerError(f"--add needs the FILE of an earlier --json, not {str(path)!r}")
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SoonerError(f"'{path}' is no result of this command: {error}") from error
    if not isinstance(found, dict) or found.get("bench") != bench:
        raise SoonerError(f"'{path}' is no result of this command")
    return found


def run_in_parts(run: Any, settings: Any, json: Path | None, debug: bool) -> dict[str, Any]:
    """Run a bench that hands over its result as it grows, and keep it part by part.

    Args:
        run: `(settings, progress, keep) -> result`.
        json: written whole whenever a part is done; `None` keeps nothing.
    """
    from sooner.io import write_json

    def keep(result: dict[str, Any]) -> None:
        if json is not None:
            write_json(result, json)

    return measured(lambda settings, progress: run(settings, progress, keep), settings, debug)


def show_tables(tables: Sequence[Any], left: int = 1) -> None:
    """Print every `Table` of a result; its first `left` columns are words, the others figures."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    for one in tables:
        table = Table(title=one.title)
        for number, head in enumerate(one.heads):
            table.add_column(head, justify="left" if number < left else "right")
        for row in one.rows:
            table.add_row(*row)
        console.print(table)


def some_of(what: str, text: str | None, known: Sequence[str], always: str) -> tuple[str, ...]:
    """The names of a list that commas separate, in the order of `known`; `always` is one of them.

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
        found = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise SoonerError(f"--{what} is '{text}'; give numbers such as {example}") from error
    if not found:
        raise SoonerError(f"--{what} is empty; give numbers such as {example}")
    return tuple(at_least_one(what, number) for number in found)


def measured(run: Any, settings: Any, debug: bool) -> dict[str, Any]:
    """Run a bench, telling its progress on a terminal."""
    import transformers
    from rich.console import Console

    from sooner.provenance import revision

    revision()  # the tree as it is now is the one that is measured
    if debug:
        options.log_decisions()
    else:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    console = Console(stderr=True)
    if not console.is_terminal:
        return run(settings, lambda line: None)
    with console.status("loading models") as status:
        return run(settings, status.update)


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


def at_least_one(name: str, value: int) -> int:
    """The value, if it is one that an option `--name` may have."""
    check_whole(f"--{name}", value)
    return value
