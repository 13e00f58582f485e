"""`sooner bench canvas`: coupled Jacobi decoding on pictures and clips whose law is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sooner.cli import options

from .bench_parts import Json, count, run_bench


def canvas(
    full: Annotated[
        bool, typer.Option("--full", help="Every start, coupling and L; 32 drawings an arm.")
    ] = False,
    drawings: Annotated[int | None, count("Drawings of each arm that is counted.")] = None,
    judged: Annotated[int | None, count("Pictures of each arm for the judge of quality.")] = None,
    nulls: Annotated[int | None, count("Null splits that tell its false alarms.")] = None,
    timed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Drawings that are timed; 0: none.")
    ] = None,
    rho: Annotated[
        float | None, typer.Option(metavar="R", help="Dependence of the codes, 0 to below 1.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Draw by what `sooner train miniature leaves` wrote instead."
        ),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Only tell SJD's forwards at every rho.")
    ] = False,
    threads: Annotated[int, count("torch threads.")] = 1,
    seed: Annotated[int, typer.Option(metavar="S", help="Of drawings and weights.")] = 20_261_126,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Count and time coupled draws against SJD from the same start, where the law is known.

    A judge of quality holds each arm's pictures against the law. Exits with 1 when an exact arm's
    are not the law's.
    """
    from ..bench.canvas.judging import faults
    from ..bench.canvas.run import run
    from ..bench.canvas.settings import CanvasSettings

    given = {"drawings": drawings, "judged": judged, "nulls": nulls, "timed": timed, "rho": rho}
    asked = {name: value for name, value in given.items() if value is not None}
    settings = CanvasSettings.full() if full else CanvasSettings()
    settings = replace(settings, **asked)  # type: ignore[arg-type]
    settings = replace(settings, model=model, calibrate=calibrate, threads=threads, seed=seed)
    settings.check()
    result = run_bench(run, settings, json, debug, words=1)
    for fault in (found := faults(result)):
        typer.echo(fault, err=True)
    if found:
        raise typer.Exit(1)
