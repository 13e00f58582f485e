"""`sooner bench drafters`: published kinds of drafters, trained for the video miniature."""

from __future__ import annotations

from typing import Annotated

import typer

from sooner.cli import options

from .bench_parts import (
    SEED,
    Arms,
    ClipSeed,
    Json,
    MaxNewTokens,
    Repeats,
    count,
    exit_on_bugs,
    run_bench,
    some_of,
)


def drafters(
    arms: Arms = None,
    clips: Annotated[int, count("Held-out clips to render.")] = 6,
    repeats: Repeats = 3,
    full: Annotated[bool, typer.Option("--full", help="24 clips, 5 repeats.")] = False,
    max_new_tokens: MaxNewTokens = 256,
    threads: options.Threads = None,
    seed: ClipSeed = SEED,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time trained drafters against chains of the same weights, and count acceptance by depth.

    Exits with 1 when an arm differs from plain decoding by more than a tie.
    """
    from ..bench.caption_settings import TRAINED, BenchSettings
    from ..bench.drafters import run

    peers = ("hf-prompt-lookup", "hf-dflash", "prompt-lookup", "speculative")
    known = ("plain", *peers, *TRAINED)
    settings = BenchSettings(
        arms=some_of("arm", arms, known, "plain"),
        clips=24 if full else clips,
        repeats=5 if full else repeats,
        max_new_tokens=max_new_tokens,
        batch=0,
        memory=False,
        threads=threads,
        seed=seed,
    )
    exit_on_bugs(run_bench(run, settings, json, debug, words=1)["arms"])
