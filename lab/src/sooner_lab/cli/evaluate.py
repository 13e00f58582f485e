"""`sooner eval`: how right results are, on benchmarks with their own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sooner.cli.display import Display
from sooner.cli.from_settings import Fields, from_settings
from sooner.cli.parse import ParseOptions
from sooner.errors import SoonerError

from .bench_parts import Json
from .eval_docs import Scoring

BAD, INTERRUPTED = 2, 130
PARSED = Fields(
    only=(
        "model", "device", "dtype", "threads", "drafter", "settings", "resume", "workers", "dpi",
        "longest", "compare", "ray", "ray_address", "actors", "in_flight",
    ),
    defaults={"output": ""},
)  # fmt: skip

group = typer.Typer(no_args_is_help=True, help="Score results on benchmarks.")


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    app.add_typer(group, name="eval")


@group.command()
@from_settings
def docs(
    *,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The benchmark, as it was published.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FOLDER", help="Predictions, for official scorers."),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Score this Markdown instead of parsing the pages."),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="omnidocbench, olmocr-bench or ocean-ocr-bench; by default what the files say.",
        ),
    ] = None,
    json: Json = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Pages, evenly spread over the benchmark.")
    ] = None,
    request: Annotated[ParseOptions, PARSED],
    display: Display,
) -> None:
    """Score parsed pages on OmniDocBench, olmOCR-Bench or Ocean-OCR-Bench.

    Parses the pages into -o, resumable, here or on Ray, or takes what --predictions holds. Nothing
    is fetched. The figures are not the official ones: docs/evaluation.md says what differs.
    """
    scoring = Scoring(folder, benchmark, limit, json, output, display)
    if predictions is not None:
        if request.compare:
            raise SoonerError("--compare times pages that are parsed; leave --predictions out")
        scoring.score_predictions(predictions)
        return
    request = replace(
        request,
        inputs=[],
        output=str(scoring.folder_for_predictions()),
        formats="md",
        debug=display.debug,
    )
    try:
        failed = scoring.parsed(request)
    except KeyboardInterrupt:
        message = "interrupted: what is parsed is kept; the same command goes on there"
        scoring.display.error(message)
        raise typer.Exit(INTERRUPTED) from None
    if failed:
        raise typer.Exit(BAD)
