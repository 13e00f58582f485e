"""`sooner bench imagine`: arms that draw, timed, judged and looked into."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sooner.cli import options
from sooner.errors import unknown

from .bench_parts import (
    SEED,
    Add,
    Arms,
    Json,
    OneThread,
    count,
    exit_on_bugs,
    keep_in,
    listed,
    numbers,
    read_result,
    run_bench,
    some_of,
)

FULL: dict[str, Any] = {
    "samples": 4, "batch": 8, "rows": 8, "gate": 100_000,
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
    arms: Arms = None,
    parts: Annotated[str | None, listed("Only speed, batch, study.")] = None,
    jacobi_windows: Annotated[
        str, typer.Option(metavar="N,N,...", help="Places drafted ahead, L.")
    ] = "16,32,64,128",
    group: Annotated[int | None, typer.Option(metavar="N", help="Group size of GSD.")] = None,
    samples: Annotated[int | None, count("Timed drawings of each arm and window.")] = None,
    batch: Annotated[int | None, count("Rows drawn together.")] = None,
    rows: Annotated[int | None, count("Drawings behind each point of the figures.")] = None,
    full: Annotated[bool, typer.Option("--full", help="More of everything.")] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: OneThread = 1,
    seed: Annotated[int, typer.Option(metavar="S", help="Of prompts and draws.")] = SEED,
    json: Json = None,
    add: Add = False,
    debug: options.Debug = False,
) -> None:
    """Time plain decoding, HF, SJD, coupled draws and GSD alike, and study their drafts.

    The JSON grows part by part, so that an interrupted run keeps what it has
    measured. Exits with 1 when greedy decoding differs from the model's own by more than a tie.
    """
    from ..bench.imagine.settings import ARMS, KINDS, PARTS, ImagineBenchSettings

    limits = {"samples": samples, "batch": batch, "rows": rows}
    before = read_result(json, "imagine") if add else None
    if kind not in (*KINDS, "both"):
        raise unknown("kind", kind, (*KINDS, "both"))
    sizes = {name: value for name, value in limits.items() if value is not None}
    settings = ImagineBenchSettings(
        **{**(FULL if full else {}), **sizes},
        image=image,
        video=video,
        kinds=KINDS if kind == "both" else (kind,),
        arms=some_of("arm", arms, ARMS, "plain"),
        parts=some_of("part", parts, PARTS),
        jacobi_windows=numbers("jacobi-windows", jacobi_windows, "16,32,64"),
        group=group,
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
    )
    from ..bench.imagine.run import run

    result = run_bench(run, settings, json, debug, words=1, keep=keep_in(json), before=before)
    exit_on_bugs(result["arms"])
