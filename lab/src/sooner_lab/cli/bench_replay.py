"""`sooner bench replay`: speed against acceptance, on real decoders that follow a script."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from sooner.cli import options
from sooner.errors import SoonerError

from .bench_parts import Json, count, listed, numbers, run_bench, some_of


def replay(
    methods: Annotated[str | None, listed("Only these methods (plain is always in).")] = None,
    acceptance: Annotated[str | None, listed("Chances that a draft token is right.")] = None,
    rows: Annotated[str | None, listed("Rows of the batches; by default 1,8,32.")] = None,
    layers: Annotated[int | None, count("Layers of the target.")] = None,
    width: Annotated[int | None, count("Its width, a multiple of 32.")] = None,
    draft_layers: Annotated[int | None, count("Layers of the draft.")] = None,
    draft_width: Annotated[int | None, count("Its width, a multiple of 32.")] = None,
    vocab: Annotated[int | None, count("Token ids of both.")] = None,
    new_tokens: Annotated[int | None, count("Tokens that each row says.")] = None,
    prompt_tokens: Annotated[int | None, count("Tokens of a prompt.")] = None,
    texts: Annotated[int | None, count("Texts of each arm at one row.")] = None,
    repeats: Annotated[int | None, count("Timed runs of each arm on each text.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every acceptance and pattern at 1 to 32 rows.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Leave out points that do not fit; by default 270, and with --full none.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Where target and draft are.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="Of weights and states.")] = "float32",
    threads: options.Threads = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Of weights and scripts.")] = 20_261_123,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time every method at a set acceptance, beside theory from the same decoders' forwards.

    No model is trained: random decoders do the work, a script says what their logits decide. Exits
    with 1 when a text is not the script's, or an acceptance can't be.
    """
    from ..bench.replay.page import faults
    from ..bench.replay.run import run
    from ..bench.replay.settings import METHODS, ReplaySettings

    settings = ReplaySettings.full() if full else ReplaySettings()
    chances = None if acceptance is None else _chances(acceptance)
    values = {
        "methods": some_of("method", methods, METHODS, "plain"),
        "acceptance": chances,
        "clustered_acceptance": chances,
        "batch_acceptance": chances,
        "rows": None if rows is None else numbers("rows", rows, "1,8"),
        "layers": layers,
        "width": width,
        "draft_layers": draft_layers,
        "draft_width": draft_width,
        "vocab": vocab,
        "new_tokens": new_tokens,
        "prompt_tokens": prompt_tokens,
        "texts": texts,
        "repeats": repeats,
        "budget": budget,
        "device": device,
        "dtype": dtype,
        "threads": threads,
        "seed": seed,
    }
    changes = {name: value for name, value in values.items() if value is not None}
    settings = replace(settings, **changes)  # type: ignore[arg-type]
    settings.check()
    result = run_bench(run, settings, json, debug, words=1)
    for place in result["left_out"]:
        typer.echo(f"left out for the budget: {place}", err=True)
    for fault in (failures := faults(result)):
        typer.echo(fault, err=True)
    if failures:
        raise typer.Exit(1)


def _chances(text: str) -> tuple[float, ...]:
    try:
        values = sorted({float(part) for part in text.split(",") if part.strip()})
    except ValueError:
        values = []
    if not values:
        raise SoonerError(f"--acceptance is '{text}'; give chances such as 0.6,0.9")
    return tuple(values)
