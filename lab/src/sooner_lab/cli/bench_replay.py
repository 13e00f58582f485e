"""`sooner bench replay`: speed against acceptance, on real decoders that follow a script."""

from __future__ import annotations

from typing import Annotated

import typer

from sooner.cli import options
from sooner.cli.from_settings import from_settings

from ..bench import fields
from ..bench.replay.settings import ReplaySettings
from .bench_parts import Json, keep_in, run_bench


@from_settings
def replay(
    *,
    settings: Annotated[ReplaySettings, fields.options(ReplaySettings)],
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time every method at a set acceptance, beside theory from the same decoders' forwards.

    No model is trained: random decoders do the work, a script says what their logits decide. Exits
    with 1 when a text is not the script's, or an acceptance can't be. The JSON grows point by
    point.
    """
    from ..bench.replay.page import faults
    from ..bench.replay.run import run

    result = run_bench(run, settings, json, debug, words=1, keep=keep_in(json))
    for place in result["left_out"]:
        typer.echo(f"left out for the budget: {place}", err=True)
    for fault in (failures := faults(result)):
        typer.echo(fault, err=True)
    if failures:
        raise typer.Exit(1)
