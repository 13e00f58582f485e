"""`sooner bench soak`: a server under mixed load and faults, and what it keeps of it."""

from __future__ import annotations

from typing import Annotated

import typer

from sooner.cli import options
from sooner.cli.from_settings import from_settings

from ..bench import fields
from ..bench.soak.settings import SoakSettings
from .bench_parts import Json, run_bench


@from_settings
def soak(
    *,
    settings: Annotated[SoakSettings, fields.options(SoakSettings)],
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Ask `sooner serve miniature` for everything, rightly and wrongly, and kill its decoders.

    Exits with 1 when a law is broken: an answer lost or another than alone, a status that is not
    documented, memory, descriptors or processes that stay, an end that is not clean.
    """
    from ..bench.soak.run import run

    result = run_bench(run, settings, json, debug)
    for message in (*result["broken"], *result["faults"]):
        typer.echo(message, err=True)
    if not all(law["holds"] for law in result["laws"]):
        raise typer.Exit(1)
