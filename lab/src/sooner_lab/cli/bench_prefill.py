"""`sooner bench prefill`: sparse attention against dense, by prompt length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sooner.checks import check_number
from sooner.cli import options

from .bench_parts import (
    SEED,
    Json,
    OneThread,
    Repeats,
    count,
    keep_in,
    listed,
    numbers,
    run_bench,
    some_of,
)

EXAMPLE = "4096,8192"


def prefill(
    model: options.Model = None,
    patterns: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of the `ours` arm; by default searched first."),
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Prompt lengths in tokens.")
    ] = None,
    arms: Annotated[str | None, listed("Only these arms (dense is always in).")] = None,
    parts: Annotated[str | None, listed("Only these of layer, model, needles.")] = None,
    frame: Annotated[int, count("Tokens a frame in the layer.")] = 256,
    budget: Annotated[
        float, typer.Option(metavar="X", help="Share of dense for a-shape and tri-shape.")
    ] = 0.15,
    repeats: Repeats = 3,
    needles: Annotated[int, count("Samples of each length and depth.")] = 4,
    frames: Annotated[
        str, typer.Option(metavar="N,N,...", help="Haystacks of the needle test, in frames.")
    ] = "16,32,64",
    full: Annotated[
        bool,
        typer.Option("--full", help="Lengths up to 32,768 tokens, and needles."),
    ] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: OneThread = 1,
    seed: Annotated[int, typer.Option(metavar="S", help="Of states, clips and needles.")] = SEED,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time dense attention, the baselines' patterns and ours, and say what each one loses.

    Takes a few minutes on two cores without --full, which takes an hour or more.

    With --json the file grows part by part, so that an interrupted run keeps what it has measured.
    """
    from ..bench.prefill.settings import (
        ARMS,
        FULL_LENGTHS,
        LENGTHS,
        PARTS,
        USUAL,
        PrefillSettings,
    )

    check_number("--budget", budget, 0, 1, above=True)
    swept = numbers("lengths", lengths, EXAMPLE) if lengths else FULL_LENGTHS if full else LENGTHS
    settings = PrefillSettings(
        model=model,
        patterns=patterns,
        lengths=swept,
        arms=some_of("arm", arms, ARMS, "dense"),
        parts=some_of("part", parts, PARTS) if parts else PARTS if full else USUAL,
        budget=budget,
        frame=frame,
        repeats=repeats,
        needles=needles,
        frames=numbers("frames", frames, EXAMPLE),
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
    )
    from ..bench.prefill.run import run

    run_bench(run, settings, json, debug, keep=keep_in(json))
