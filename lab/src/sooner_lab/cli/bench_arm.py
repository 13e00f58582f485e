"""`sooner bench arm`: what relaxed acceptance costs a robot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sooner.cli import options

from .bench_parts import Json, count, keep_in, listed, run_bench, some_of


def arm(
    models: Annotated[
        Path,
        typer.Option(metavar="DIR", help="What `sooner train miniature arm` wrote."),
    ] = Path("miniature-arm"),
    parts: Annotated[str | None, listed("Only these: gate, acceptance, loops.")] = None,
    starts: Annotated[int | None, count("Starts of each task; fewer than all are a trial.")] = None,
    processes: Annotated[int, count("Processes that act side by side.")] = 2,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Strict and relaxed acceptance of an arm's actions: successes on paired starts, drafts.

    Needs robosuite. Exits with 1 when a strict action is not HF's.
    """
    from ..bench.arm.run import run
    from ..bench.arm.settings import PARTS, ArmSettings

    settings = ArmSettings(
        models, parts=some_of("part", parts, PARTS), starts=starts, processes=processes
    )
    result = run_bench(run, settings, json, debug, words=2, keep=keep_in(json))
    arms = result.get("acceptance", {"arms": []})["arms"]
    if any(one["differing"] for one in arms if not one["tolerance"]):
        typer.echo("a strict action differs from HF's generate", err=True)
        raise typer.Exit(1)
