"""`sooner bench prefill`: sparse attention against dense, by prompt length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SoonerError, unknown
from . import options
from .bench import WIDE, Json, at_least_one, check_writable, measured

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
        str | None, typer.Option(metavar="A,B,...", help="Only layer, model, regions, needles.")
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
    full: Annotated[bool, typer.Option("--full", help="Lengths up to 32,768 tokens.")] = False,
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

    With --json the file grows part by part, so that an interrupted run keeps what it has measured.
    """
    from ..bench.prefill.settings import FULL_LENGTHS, LENGTHS, PrefillSettings
    from ..bench.report import write_json

    if json is not None:
        check_writable(json)
    settings = PrefillSettings(
        model=model,
        patterns=patterns,
        lengths=_numbers("lengths", lengths) if lengths else FULL_LENGTHS if full else LENGTHS,
        arms=_names("arm", arms),
        parts=_names("part", parts),
        budget=_share(budget),
        frame=at_least_one("frame", frame),
        repeats=at_least_one("repeats", repeats),
        needles=at_least_one("needles", needles),
        frames=_numbers("frames", frames),
        device=device,
        dtype=dtype,
        threads=at_least_one("threads", threads),
        seed=seed,
    )

    def keep(result: dict[str, Any]) -> None:
        if json is not None:
            write_json(result, json)

    def work(settings: PrefillSettings, progress: Any) -> dict[str, Any]:
        from ..bench.prefill.run import run

        return run(settings, progress, keep)

    show(measured(work, settings, debug))
    if json is not None:
        typer.echo(f"wrote {json}", err=True)


def show(result: dict[str, Any]) -> None:
    """Print every table of the result."""
    from rich.console import Console
    from rich.table import Table

    from ..bench.prefill.page import tables

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    for one in tables(result):
        table = Table(title=one.title)
        for number, head in enumerate(one.heads):
            table.add_column(head, justify="right" if number > 1 else "left")
        for row in one.rows:
            table.add_row(*row)
        console.print(table)


def _names(what: str, text: str | None) -> tuple[str, ...]:
    from ..bench.prefill.settings import ARMS, PARTS

    known: Sequence[str] = ARMS if what == "arm" else PARTS
    if text is None:
        return tuple(known)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise unknown(what, name, known)
    return tuple(name for name in known if name in names or name == "dense")


def _numbers(what: str, text: str) -> tuple[int, ...]:
    try:
        found = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise SoonerError(f"--{what} is '{text}'; give numbers such as 4096,8192") from error
    if not found:
        raise SoonerError(f"--{what} is empty; give numbers such as 4096,8192")
    return tuple(at_least_one(what, number) for number in found)


def _share(budget: float) -> float:
    if not 0 < budget <= 1:
        raise SoonerError(f"--budget is {budget:g}; it is a share of dense attention, above 0 to 1")
    return budget
