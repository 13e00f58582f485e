"""`sooner bench soak`: a server under mixed load and faults, and what it keeps of it."""

from __future__ import annotations

from typing import Annotated

import typer

from sooner.cli import options

from .bench_parts import Json, count, run_bench


def soak(
    minutes: Annotated[
        float, typer.Option(metavar="N", min=0.1, help="Of load; settling comes on top.")
    ] = 30.0,
    processes: Annotated[int, count("Processes of clients.")] = 2,
    threads: Annotated[int, count("Clients of each.")] = 4,
    seed: Annotated[int, typer.Option(metavar="S", help="Of what clients do.")] = 20_261_123,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Ask `sooner serve miniature` for everything, rightly and wrongly, and kill its decoders.

    Exits with 1 when a law is broken: an answer lost or another than alone, a status that is not
    documented, memory, descriptors or processes that stay, an end that is not clean.
    """
    from ..bench.soak.run import run
    from ..bench.soak.settings import SoakSettings

    settings = SoakSettings(minutes=minutes, processes=processes, threads=threads, seed=seed)
    result = run_bench(run, settings, json, debug)
    for message in (*result["broken"], *result["faults"]):
        typer.echo(message, err=True)
    if not all(law["holds"] for law in result["laws"]):
        raise typer.Exit(1)
