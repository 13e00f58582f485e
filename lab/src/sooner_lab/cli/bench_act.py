"""`sooner bench act`: a robot policy decoded plainly, strictly and with tolerances."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sooner.cli import options
from sooner.errors import SoonerError

from .bench_parts import (
    SEED,
    Arms,
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

EPISODES, FULL_EPISODES = 2, 17


def act(
    model: options.Model = None,
    head: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draft head; by default the miniature's.")
    ] = None,
    unnorm_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Data set whose statistics apply.")
    ] = None,
    envs: Annotated[str | None, listed("Such as: reach, push, drawer-open, table.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSONL of image, instruction, action: your own observations, no simulator.",
        ),
    ] = None,
    arms: Arms = None,
    parts: Annotated[str | None, listed("Only offline, trees, loops.")] = None,
    tolerances: Annotated[
        str | None, typer.Option(metavar="R,R,...", help="Bins of the relaxed arms.")
    ] = None,
    chosen: Annotated[
        int, typer.Option(metavar="R", help="The tolerance of tables that show one.")
    ] = 9,
    observations: Annotated[int, count("Recorded observations of each environment.")] = 12,
    repeats: Repeats = 2,
    episodes: Annotated[int | None, count("Closed-loop episodes of each setting and task.")] = None,
    batch: Annotated[int, count("Episodes side by side.")] = 8,
    full: Annotated[
        bool, typer.Option("--full", help="17 episodes of each setting and task, not 2.")
    ] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: OneThread = 1,
    seed: Annotated[int, typer.Option(metavar="S", help="Of observations and episodes.")] = SEED,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time the arms on recorded observations, and count successes in closed loops.

    With --json the file grows part by part, so that an interrupted run keeps what it has measured.
    """
    from ..bench.act.settings import ARMS, ENVS, PARTS, TOLERANCES, ActSettings

    if episodes is None:
        episodes = FULL_EPISODES if full else EPISODES
    bins = numbers("tolerances", tolerances, "3,9") if tolerances else TOLERANCES
    if chosen not in bins:
        raise SoonerError(
            f"--chosen is {chosen}, which is not among the tolerances "
            f"{', '.join(map(str, bins))}; add it to --tolerances"
        )
    settings = ActSettings(
        model=model,
        head=None if head is None else str(head),
        unnorm_key=unnorm_key,
        envs=tuple(name.strip() for name in envs.split(",")) if envs else ENVS,
        data=None if data is None else str(data),
        arms=some_of("arm", arms, ARMS, "plain"),
        parts=some_of("part", parts, PARTS),
        tolerances=bins,
        chosen=chosen,
        observations=observations,
        repeats=repeats,
        episodes=episodes,
        batch=batch,
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
    )
    from ..bench.act.run import run

    run_bench(run, settings, json, debug, keep=keep_in(json))
