"""`sooner eval`: how right results are, on benchmarks with their own files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sooner.cli import options
from sooner.cli import parse_options as parse_options
from sooner.cli.display import Display
from sooner.cli.from_settings import Fields, from_settings
from sooner.cli.parse import WithAddress
from sooner.errors import SoonerError
from sooner.tasks.parse.settings import ParseSettings

from .bench_parts import Json
from .eval_docs import Scoring

BAD, INTERRUPTED = 2, 130
PARSED = Fields(
    only=("acceptance_threshold", "stages", "form", "prompt", "max_new_tokens", "timeout")
)

group = typer.Typer(no_args_is_help=True, help="Score results on benchmarks.")


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    app.add_typer(group, name="eval")


@group.command(cls=WithAddress)
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
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Decode each page plainly too: speed and AAL by category."),
    ] = False,
    model: options.Model = None,
    drafter: parse_options.Drafter = "auto",
    settings: Annotated[ParseSettings, PARSED],
    resume: parse_options.Resume = True,
    workers: parse_options.Workers = 1,
    dpi: parse_options.Dpi = None,
    longest: parse_options.Longest = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    ray: parse_options.Ray = None,
    actors: parse_options.Actors = None,
    in_flight: parse_options.InFlight = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Score parsed pages on OmniDocBench, olmOCR-Bench or Ocean-OCR-Bench.

    Parses the pages into -o, resumable, here or on Ray, or takes what --predictions holds. Nothing
    is fetched. The figures are not the official ones: docs/evaluation.md says what differs.
    """
    if debug:
        options.log_decisions()
    scoring = Scoring(folder, benchmark, limit, json, output, Display(quiet))
    if predictions is not None:
        if compare:
            raise SoonerError("--compare times pages that are parsed; leave --predictions out")
        scoring.score_predictions(predictions)
        return
    request = parse_options.ParseOptions(
        inputs=[],
        output=str(scoring.folder_for_predictions()),
        settings=settings,
        model=model,
        drafter=drafter,
        formats="md",
        overlay=False,
        workers=workers,
        compare=compare,
        resume=resume,
        dpi=dpi,
        longest=longest,
        device=device,
        dtype=dtype,
        threads=threads,
        debug=debug,
        ray=ray,
        actors=actors,
        in_flight=in_flight,
    )
    try:
        failed = scoring.parsed(request)
    except KeyboardInterrupt:
        message = "interrupted: what is parsed is kept; the same command goes on there"
        scoring.display.error(message)
        raise typer.Exit(INTERRUPTED) from None
    if failed:
        raise typer.Exit(BAD)
