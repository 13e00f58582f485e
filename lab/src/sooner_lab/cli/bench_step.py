"""`sooner bench step`: what a step launches, waits for and moves, counted without a GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from sooner.cli import options
from sooner.cli.from_settings import from_settings

from ..bench import fields
from ..bench.step.settings import StepSettings
from .bench_parts import Json, run_bench


@from_settings
def step(
    *,
    settings: Annotated[StepSettings, fields.options(StepSettings)],
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Count operations, reads, uploads and bytes of a round, on the shape of a 7B model.

    Exits with 1 when a static step waits, grows, breaks its graph or moves too much.
    """
    from ..bench.step.run import run

    result = run_bench(run, settings, json, debug)
    for fault in result["faults"]:
        typer.echo(fault, err=True)
    if result["faults"]:
        raise typer.Exit(1)
