"""`sooner bench gpu`: kernels and decoding on one NVIDIA GPU, in nine minutes at most."""

from __future__ import annotations

from typing import Annotated

import typer

from .bench_parts import Add, Debug, Json, run_bench

Sections = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only this section; may be given several times."),
]


def gpu(
    section: Sections = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Skip what does not fit; by default 540."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda unless --tiny.")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="Tiny shapes: a proof, no figures.")] = False,
    seed: Annotated[int, typer.Option(metavar="S", help="Of weights, states and scripts.")] = 0,
    json: Json = None,
    add: Add = False,
    debug: Debug = False,
) -> None:
    """Measure kernels, plain steps, verification and drafts of set acceptance on one GPU.

    With --json the file grows section by section, so that an interrupted run keeps what it has
    measured. Exits with 1 when a kernel is red, a text is not plain's, or a section failed.

    Where only torch and transformers are installed, `python -m sooner_lab.gpu` does the same.
    """
    from ..bench.gpu.run import run
    from ..bench.result_file import ResultFile, read_result
    from ..gpu import faults, settings_of

    settings = settings_of(section, budget, device, tiny, seed)
    earlier = read_result(json, "gpu") if add else None
    file = ResultFile(json, "gpu")
    result = run_bench(run, settings, file, debug, keep=file, earlier=earlier)
    for fault in (failures := faults(result)):
        typer.echo(fault, err=True)
    if failures:
        raise typer.Exit(1)
