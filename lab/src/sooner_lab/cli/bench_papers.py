"""`sooner bench papers`: every table and figure of the papers beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sooner.cli import options

from .bench_parts import Json, run_bench


def papers(
    results: Annotated[Path, typer.Option(metavar="DIR", help="The results' JSONs.")] = Path(
        "docs/results"
    ),
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Hold every row of the five papers against our results, or say why there is none.

    Measures nothing. Results of a tree with uncommitted changes are refused.
    """
    from ..bench.papers.run import PapersSettings, run

    run_bench(run, PapersSettings(results), json, debug, words=8)
