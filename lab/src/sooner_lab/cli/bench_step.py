"""`sooner bench step`: what a step launches, waits for and moves, counted without a GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from sooner.cli import options

from .bench_parts import Json, count, listed, run_bench, some_of

METHODS = ("plain", "prompt-lookup", "speculative", "sd-tree", "eagle", "jacobi", "hsd")
"""Methods whose rounds are counted."""


def step(
    methods: Annotated[str | None, listed("Only these methods.")] = None,
    length: Annotated[int, count("Tokens of the prompt where bytes are counted.")] = 25_000,
    block: Annotated[int, count("Entries of the verification.")] = 16,
    rows: Annotated[int, count("Rows of the batch.")] = 1,
    layers: Annotated[int, count("Layers of the 7B shape.")] = 28,
    compiles: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Count graph breaks and recompiles.")
    ] = True,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Count operations, reads, uploads and bytes of a round, on the shape of a 7B model.

    Exits with 1 when a static step waits, grows, breaks its graph or moves too much.
    """
    from ..bench.step.run import run
    from ..bench.step.settings import StepSettings

    settings = StepSettings(
        methods=some_of("method", methods, METHODS),
        length=length,
        block=block,
        rows=rows,
        layers=layers,
        compiles=compiles,
    )
    result = run_bench(run, settings, json, debug)
    for fault in result["faults"]:
        typer.echo(fault, err=True)
    if result["faults"]:
        raise typer.Exit(1)
