"""`sooner bench`: measure by the protocol, keep the JSON, make the tables from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sooner.cli import options
from sooner.errors import SoonerError, unknown
from sooner.io import check_writable

from .bench_parts import (
    WIDE,
    Dataset,
    Json,
    MinSeconds,
    Retention,
    at_least_one,
    full_clips,
    measured,
    videos,
)

group = typer.Typer(
    no_args_is_help=True, help="Measure methods against each other and against peers."
)


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    from .bench_act import act
    from .bench_imagine import imagine
    from .bench_parallel import parallel
    from .bench_parse import parse
    from .bench_prefill import prefill

    group.command()(act)
    group.command()(imagine)
    group.command()(parallel)
    group.command()(parse)
    group.command()(prefill)
    app.add_typer(group, name="bench")


@group.command()
def caption(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", help="Videos; by default held-out rendered clips."),
    ] = None,
    model: options.Model = None,
    draft: options.Draft = None,
    arms: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Only these arms (plain is always in).")
    ] = None,
    dataset: Dataset = None,
    min_seconds: MinSeconds = None,
    clips: Annotated[
        int, typer.Option(metavar="N", help="Held-out clips to render, or samples to take.")
    ] = 4,
    frames: options.Frames = None,
    repeats: Annotated[int, typer.Option(metavar="N", help="Timed runs of each arm.")] = 3,
    full: Annotated[bool, typer.Option("--full", help="12 clips (50 samples), 5 repeats.")] = False,
    max_new_tokens: options.MaxNewTokens = 256,
    window: Annotated[int, typer.Option(metavar="N", help="Of the `speculative` arm.")] = 5,
    prune: options.Prune = None,
    retention: Retention = 0.1,
    batch: Annotated[int, typer.Option(metavar="N", help="Rows of the batch; 0: none.")] = 8,
    memory: Annotated[bool, typer.Option(help="Measure peak memory too.")] = True,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the rendered clips.")] = 20_261_121,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time plain decoding, HF's peers and our methods on the same clips, in one run.

    Exits with 1 when an exact arm differs from plain decoding by more than a tie.
    """
    from sooner.io import write_json

    from ..bench.caption import run
    from ..bench.caption_settings import BenchSettings

    settings = BenchSettings(
        model=model,
        draft=draft,
        arms=_arms(arms),
        files=tuple(videos(files, dataset)),
        dataset=dataset,
        min_seconds=min_seconds,
        clips=full_clips(dataset) if full else at_least_one("clips", clips),
        frames=frames,
        repeats=5 if full else at_least_one("repeats", repeats),
        max_new_tokens=at_least_one("max-new-tokens", max_new_tokens),
        window=at_least_one("window", window),
        prune=prune,
        retention=retention,
        batch=batch,
        memory=memory,
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
    )
    if json is not None:
        check_writable(json)
    result = measured(run, settings, debug)
    show(result)
    if json is not None:
        write_json(result, json)
        typer.echo(f"wrote {json}", err=True)
    if any(arm["mode"] == "exact" and arm["parity"] == "bug" for arm in result["arms"]):
        raise typer.Exit(1)


@group.command()
def report(
    files: Annotated[list[Path], typer.Argument(metavar="JSON...", help="Results of a bench.")],
) -> None:
    """Write the Markdown page of each result beside it, and the figures if it has any."""
    import json

    from ..bench.report import markdown, write_figures

    for path in files:
        try:
            result = json.loads(path.read_text())
            page = markdown(result, path.name)
        except (OSError, ValueError, KeyError) as error:
            raise SoonerError(
                f"'{path}' is no result of `sooner bench`: {type(error).__name__} {error}; make "
                "one with --json"
            ) from error
        path.with_suffix(".md").write_text(page)
        for made in (path.with_suffix(".md"), *write_figures(result, path)):
            typer.echo(f"wrote {made}")


def show(result: dict[str, Any]) -> None:
    """Print the arms as a table, then batch and memory."""
    from rich.console import Console
    from rich.table import Table

    from ..bench.report import cells, footnotes, headings

    table = Table(title=f"{result['bench']}: {result['model']}, {result['clips']} clips")
    for heading in headings():
        table.add_column(heading, justify="left" if heading in ("method", "mode") else "right")
    for arm in result["arms"]:
        table.add_row(*cells(arm))
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    console.print(table)
    for line in footnotes(result):
        console.print(line, highlight=False)


def _arms(text: str | None) -> tuple[str, ...]:
    from ..bench.caption_settings import ARMS, KNOWN

    if text is None:
        return ARMS
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in KNOWN:
            raise unknown("arm", name, KNOWN)
    return tuple(name for name in KNOWN if name in names or name == "plain")
