"""`sooner bench act`: a robot policy decoded plainly, strictly and with tolerances."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.cli import options
from sooner.errors import SoonerError
from sooner.io import check_writable

from .bench_parts import Json, at_least_one, numbers, run_in_parts, show_tables, some_of

if TYPE_CHECKING:
    from ..bench.act.settings import ActSettings

EPISODES, FULL_EPISODES = 2, 17


def act(
    model: options.Model = None,
    head: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draft head; by default the miniature's.")
    ] = None,
    unnorm_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Data set whose statistics apply.")
    ] = None,
    envs: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Such as: reach, push, drawer-open, table."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSONL of image, instruction, action: your own observations, no simulator.",
        ),
    ] = None,
    arms: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Only these arms (plain is always in).")
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Only offline, trees, distance, cases, clients, ..."),
    ] = None,
    tolerances: Annotated[
        str | None, typer.Option(metavar="R,R,...", help="Bins of the relaxed arms.")
    ] = None,
    chosen: Annotated[
        int, typer.Option(metavar="R", help="The tolerance of tables that show one.")
    ] = 9,
    observations: Annotated[
        int, typer.Option(metavar="N", help="Recorded observations of each environment.")
    ] = 12,
    distances: Annotated[
        int, typer.Option(metavar="N", help="Observations of each for the distance from exact.")
    ] = 100,
    repeats: Annotated[int, typer.Option(metavar="N", help="Timed runs of each arm.")] = 2,
    episodes: Annotated[
        int | None, typer.Option(metavar="N", help="Closed-loop episodes of each setting and task.")
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", help="Episodes side by side.")] = 8,
    full: Annotated[
        bool, typer.Option("--full", help="17 episodes of each setting and task, not 2.")
    ] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: Annotated[int, typer.Option(metavar="N", help="torch threads.")] = 1,
    seed: Annotated[
        int, typer.Option(metavar="S", help="Of observations and episodes.")
    ] = 20_261_121,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time the arms on recorded observations, and count successes in closed loops.

    With --json the file grows part by part, so that an interrupted run keeps what it has measured.
    """
    from ..bench.act.settings import ENVS, TOLERANCES, ActSettings

    if json is not None:
        check_writable(json)
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
        envs=tuple(one.strip() for one in envs.split(",")) if envs else ENVS,
        data=None if data is None else str(data),
        arms=_names("arm", arms),
        parts=_names("part", parts),
        tolerances=bins,
        chosen=chosen,
        observations=at_least_one("observations", observations),
        distances=at_least_one("distances", distances),
        repeats=at_least_one("repeats", repeats),
        episodes=at_least_one("episodes", episodes),
        batch=at_least_one("batch", batch),
        device=device,
        dtype=dtype,
        threads=at_least_one("threads", threads),
        seed=seed,
    )

    def work(settings: ActSettings, progress: Any, keep: Any) -> dict[str, Any]:
        from ..bench.act.run import run

        return run(settings, progress, keep)

    show(run_in_parts(work, settings, json, debug))
    if json is not None:
        typer.echo(f"wrote {json}", err=True)


def show(result: dict[str, Any]) -> None:
    """Print every table of the result."""
    from ..bench.act.page import tables

    show_tables(tables(result), left=2)


def _names(what: str, text: str | None) -> tuple[str, ...]:
    from ..bench.act.settings import ARMS, PARTS

    return some_of(what, text, ARMS, "plain") if what == "arm" else some_of(what, text, PARTS, "")
