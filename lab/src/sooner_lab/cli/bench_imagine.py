"""`sooner bench imagine`: arms that draw, timed, judged and looked into."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.cli import options
from sooner.errors import unknown
from sooner.io import check_writable

from .bench_parts import (
    Add,
    Json,
    at_least_one,
    numbers,
    read_result,
    run_in_parts,
    show_tables,
    some_of,
)

if TYPE_CHECKING:
    from ..bench.imagine.settings import ImagineSettings

FULL = {
    "samples": 4, "quality_samples": 48, "batch": 8, "rows": 8, "gate": 100_000,
    "strengths": (0.0, 0.25, 0.5, 0.75, 0.9, 1.0),
}  # fmt: skip
"""What `--full` measures instead of the defaults."""


def imagine(
    kind: Annotated[str, typer.Option(metavar="NAME", help="image, video or both.")] = "image",
    image: Annotated[
        str | None, typer.Option(metavar="ID_OR_PATH", help="Model that draws pictures.")
    ] = None,
    video: Annotated[
        str | None, typer.Option(metavar="ID_OR_PATH", help="Model that continues clips.")
    ] = None,
    arms: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Only these arms (plain is always in).")
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Only speed, batch, quality, breakdown, study, story."
        ),
    ] = None,
    windows: Annotated[
        str, typer.Option(metavar="N,N,...", help="Places drafted ahead, L.")
    ] = "16,32,64,128",
    group: Annotated[int | None, typer.Option(metavar="N", help="Group size of GSD.")] = None,
    samples: Annotated[
        int | None, typer.Option(metavar="N", help="Timed drawings of each arm and window.")
    ] = None,
    quality_samples: Annotated[
        int | None, typer.Option(metavar="N", help="Drawings of each arm that are judged.")
    ] = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Rows drawn together.")] = None,
    rows: Annotated[
        int | None, typer.Option(metavar="N", help="Drawings behind each point of the figures.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="More of everything.")] = False,
    fid_weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Inception weights, for real FID and IS.")
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: Annotated[int, typer.Option(metavar="N", help="torch threads.")] = 1,
    seed: Annotated[int, typer.Option(metavar="S", help="Of prompts and draws.")] = 20_261_121,
    json: Json = None,
    add: Add = False,
    debug: options.Debug = False,
) -> None:
    """Time plain decoding, HF, SJD, coupled draws and GSD alike, and judge what they draw.

    Pictures that need the model go to `figures/` beside the JSON, the others come from `sooner
    bench report`. The JSON grows part by part, so that an interrupted run keeps what it has
    measured. Exits with 1 when greedy decoding differs from the model's own by more than a tie.
    """
    from ..bench.pages import figures_folder

    asked = {
        "samples": samples, "quality_samples": quality_samples, "batch": batch, "rows": rows,
    }  # fmt: skip
    if json is not None:
        check_writable(json)
    before = read_result(json, "imagine") if add else None
    settings = _settings(
        full,
        {name: value for name, value in asked.items() if value is not None},
        image=image,
        video=video,
        kinds=_kinds(kind),
        arms=_names("arm", arms),
        parts=_names("part", parts),
        windows=numbers("windows", windows, "16,32,64"),
        group=group,
        figures=None if json is None else figures_folder(json),
        fid_weights=fid_weights,
        device=device,
        dtype=dtype,
        threads=at_least_one("threads", threads),
        seed=seed,
    )

    def work(settings: ImagineSettings, progress: Any, keep: Any) -> dict[str, Any]:
        from ..bench.imagine.run import run

        return run(settings, progress, keep, before)

    result = run_in_parts(work, settings, json, debug)
    show(result)
    if json is not None:
        typer.echo(f"wrote {json}", err=True)
    if any(arm["parity"] == "bug" for arm in result["arms"]):
        raise typer.Exit(1)


def show(result: dict[str, Any]) -> None:
    """Print every table of the result."""
    from ..bench.imagine.page import tables

    show_tables(tables(result))


def _settings(full: bool, asked: dict[str, int], **given: Any) -> ImagineSettings:
    from ..bench.imagine.settings import ImagineSettings

    for name, value in asked.items():
        at_least_one(name.replace("_", "-"), value)
    return ImagineSettings(**{**(FULL if full else {}), **asked, **given})


def _kinds(kind: str) -> tuple[str, ...]:
    from ..bench.imagine.settings import KINDS

    if kind not in (*KINDS, "both"):
        raise unknown("kind", kind, (*KINDS, "both"))
    return KINDS if kind == "both" else (kind,)


def _names(what: str, text: str | None) -> tuple[str, ...]:
    from ..bench.imagine.settings import ARMS, PARTS

    return some_of(what, text, ARMS if what == "arm" else PARTS, "plain")
