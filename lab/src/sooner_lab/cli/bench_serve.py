"""`sooner bench serve`: servers under load, drafting and plain, beside HF's own batching."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sooner.cli import options

from .bench_parts import (
    SEED,
    Arms,
    Json,
    OneThread,
    count,
    exit_on_bugs,
    keep_in,
    listed,
    numbers,
    run_bench,
    some_of,
)

ROUNDS, FULL_ROUNDS = 2, 6
ARRIVALS, FULL_ARRIVALS = 60, 300


def serve(
    model: options.Model = None,
    draft: options.Draft = None,
    head: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draft head, for the eagle arm.")
    ] = None,
    arms: Arms = None,
    parts: Annotated[str | None, listed("Only clients, poisson, second, text.")] = None,
    clients: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Clients of the closed loops.")
    ] = None,
    max_rows: Annotated[int, count("Rows that the servers decode together.")] = 32,
    clips: Annotated[int, count("Different requests about clips.")] = 6,
    texts: Annotated[int, count("Different requests without a clip.")] = 3,
    rounds: Annotated[int | None, count("Rounds of the closed loops.")] = None,
    arrivals: Annotated[int | None, count("Requests of the open loop.")] = None,
    clip_tokens: Annotated[int, count("Where an answer about a clip is cut.")] = 128,
    text_tokens: Annotated[int, count("Where another answer is cut.")] = 48,
    full: Annotated[bool, typer.Option("--full", help="6 rounds, 300 arrivals, 12 clips.")] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: OneThread = 1,
    seed: Annotated[int, typer.Option(metavar="S", help="Of clips, orders and arrivals.")] = SEED,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Start a server for each arm, ask all of them the same from another process, compare.

    With --json the file grows part by part. Exits with 1 when an arm's tokens differ from HF's.
    """
    from ..bench.serve.run import run
    from ..bench.serve.settings import ARMS, PARTS, PLAIN, ServeBenchSettings

    known = ARMS if head is not None else tuple(arm for arm in ARMS if arm != "eagle")
    settings = ServeBenchSettings(
        model=model,
        draft=draft,
        head=None if head is None else str(head),
        arms=some_of("arm", arms, ARMS if arms else known, PLAIN),
        parts=some_of("part", parts, PARTS),
        clients=numbers("clients", clients, "1,8") if clients else ServeBenchSettings.clients,
        max_rows=max_rows,
        clips=2 * clips if full else clips,
        texts=2 * texts if full else texts,
        rounds=rounds or (FULL_ROUNDS if full else ROUNDS),
        arrivals=arrivals or (FULL_ARRIVALS if full else ARRIVALS),
        clip_tokens=clip_tokens,
        text_tokens=text_tokens,
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
    )
    result = run_bench(run, settings, json, debug, keep=keep_in(json))
    exit_on_bugs(result["parity"])
