"""`sooner bench scale`: one worker and two, by the plain command and on Ray."""

from __future__ import annotations

from typing import Annotated

import typer

from sooner.cli import options

from .bench_parts import Add, Arms, Json, count, keep_in, read_result, run_bench, some_of


def scale(
    arms: Arms = None,
    pages: Annotated[int, count("Of a long run.")] = 64,
    short: Annotated[
        int, typer.Option(metavar="N", min=0, help="Pages of a short run, for the start; 0: none.")
    ] = 8,
    repeats: Annotated[
        int, typer.Option(metavar="N", min=0, help="Of the long runs; 0: short ones alone.")
    ] = 1,
    in_flight: Annotated[int, count("Pages at once in a parser of Ray's.")] = 1,
    add: Add = False,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Parse scans by one worker and by two, each on a core of its own, with Ray and without.

    Pages a second are those of long runs beyond a short one, so start-up is told apart. With --add
    runs are added to those of --json's FILE.
    """
    from ..bench.scale.run import run
    from ..bench.scale.settings import ARMS, ScaleBenchSettings

    settings = ScaleBenchSettings(
        arms=some_of("arm", arms, tuple(ARMS)),
        pages=pages,
        short=short,
        repeats=repeats,
        in_flight=in_flight,
    )
    before = read_result(json, "scale") if add else None
    run_bench(run, settings, json, debug, words=1, keep=keep_in(json), before=before)
