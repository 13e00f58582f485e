"""`sooner bench prefill`: sparse attention against dense, by prompt length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.checks import check_number
from sooner.cli import options
from sooner.io import check_writable

from .bench_parts import Json, at_least_one, numbers, run_in_parts, show_tables, some_of

if TYPE_CHECKING:
    from ..bench.prefill.settings import PrefillSettings


def prefill(
    model: options.Model = None,
    patterns: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of the `ours` arm; by default searched first."),
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Prompt lengths in tokens.")
    ] = None,
    arms: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Only these arms (dense is always in).")
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Only these of layer, model, planted, duels, regions, needles.",
        ),
    ] = None,
    frame: Annotated[int, typer.Option(metavar="N", help="Tokens a frame in the layer.")] = 256,
    budget: Annotated[
        float, typer.Option(metavar="X", help="Share of dense for a-shape and tri-shape.")
    ] = 0.15,
    repeats: Annotated[int, typer.Option(metavar="N", help="Timed runs of each arm.")] = 3,
    needles: Annotated[
        int, typer.Option(metavar="N", help="Samples of each length and depth.")
    ] = 4,
    frames: Annotated[
        str, typer.Option(metavar="N,N,...", help="Haystacks of the needle test, in frames.")
    ] = "16,32,64",
    full: Annotated[
        bool,
        typer.Option("--full", help="Lengths up to 32,768 tokens, more planted heads, needles."),
    ] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: Annotated[int, typer.Option(metavar="N", help="torch threads.")] = 1,
    seed: Annotated[
        int, typer.Option(metavar="S", help="Of states, clips and needles.")
    ] = 20_261_121,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time dense attention, the baselines' patterns and ours, and say what each one loses.

    Takes a few minutes on two cores without --full, which takes an hour or more.

    With --json the file grows part by part, so that an interrupted run keeps what it has measured.
    """
    from ..bench.prefill.settings import (
        FULL_LENGTHS,
        FULL_PLANTED,
        LENGTHS,
        PARTS,
        PLANTED,
        USUAL,
        PrefillSettings,
    )

    if json is not None:
        check_writable(json)
    settings = PrefillSettings(
        model=model,
        patterns=patterns,
        lengths=_numbers("lengths", lengths) if lengths else FULL_LENGTHS if full else LENGTHS,
        arms=_names("arm", arms),
        parts=_names("part", parts) if parts else PARTS if full else USUAL,
        budget=_share(budget),
        frame=at_least_one("frame", frame),
        repeats=at_least_one("repeats", repeats),
        planted=FULL_PLANTED if full else PLANTED,
        needles=at_least_one("needles", needles),
        frames=_numbers("frames", frames),
        device=device,
        dtype=dtype,
        threads=at_least_one("threads", threads),
        seed=seed,
    )

    def work(settings: PrefillSettings, progress: Any, keep: Any) -> dict[str, Any]:
        from ..bench.prefill.run import run

        return run(settings, progress, keep)

    show(run_in_parts(work, settings, json, debug))
    if json is not None:
        typer.echo(f"wrote {json}", err=True)


def show(result: dict[str, Any]) -> None:
    """Print every table of the result."""
    from ..bench.prefill.page import tables

    show_tables(tables(result), left=2)


def _names(what: str, text: str | None) -> tuple[str, ...]:
    from ..bench.prefill.settings import ARMS, PARTS

    return some_of(what, text, ARMS if what == "arm" else PARTS, "dense")


def _numbers(what: str, text: str) -> tuple[int, ...]:
    return numbers(what, text, "4096,8192")


def _share(budget: float) -> float:
    check_number("--budget", budget, 0, 1, above=True)
    return budget
