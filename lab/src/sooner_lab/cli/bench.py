"""`sooner bench`: measure by the protocol, keep the JSON, make the tables from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sooner.cli import options
from sooner.errors import SoonerError

from .bench_parts import (
    SEED,
    Arms,
    ClipSeed,
    Dataset,
    Json,
    MaxNewTokens,
    MinSeconds,
    NumDraftTokens,
    Prune,
    Repeats,
    Retention,
    Videos,
    count,
    exit_on_bugs,
    full_clips,
    run_bench,
    some_of,
    videos,
)

group = typer.Typer(
    no_args_is_help=True, help="Measure methods against each other and against peers."
)


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    from .bench_act import act
    from .bench_drafters import drafters
    from .bench_gpu import gpu
    from .bench_imagine import imagine
    from .bench_papers import papers
    from .bench_parallel import parallel
    from .bench_parse import parse
    from .bench_prefill import prefill
    from .bench_replay import replay
    from .bench_scale import scale
    from .bench_serve import serve
    from .bench_soak import soak
    from .bench_step import step

    group.command()(act)
    group.command()(drafters)
    group.command()(gpu)
    group.command()(imagine)
    group.command()(papers)
    group.command()(parallel)
    group.command()(parse)
    group.command()(prefill)
    group.command()(replay)
    group.command()(scale)
    group.command()(serve)
    group.command()(soak)
    group.command()(step)
    app.add_typer(group, name="bench")


@group.command()
def caption(
    files: Videos = None,
    model: options.Model = None,
    draft: options.Draft = None,
    arms: Arms = None,
    dataset: Dataset = None,
    min_seconds: MinSeconds = None,
    clips: Annotated[int, count("Held-out clips to render, or samples to take.")] = 4,
    frames: options.Frames = None,
    repeats: Repeats = 3,
    full: Annotated[bool, typer.Option("--full", help="12 clips (50 samples), 5 repeats.")] = False,
    max_new_tokens: MaxNewTokens = 256,
    num_draft_tokens: NumDraftTokens = 5,
    prune: Prune = None,
    retention: Retention = 0.1,
    batch: Annotated[int, typer.Option(metavar="N", help="Rows of the batch; 0: none.")] = 8,
    memory: Annotated[bool, typer.Option(help="Measure peak memory too.")] = True,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    seed: ClipSeed = SEED,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time plain decoding, HF's peers and our methods on the same clips, in one run.

    Exits with 1 when an exact arm differs from plain decoding by more than a tie.
    """
    from ..bench.caption import run
    from ..bench.caption_settings import ARMS, KNOWN, BenchSettings

    settings = BenchSettings(
        model=model,
        draft=draft,
        arms=ARMS if arms is None else some_of("arm", arms, KNOWN, "plain"),
        files=tuple(videos(files, dataset)),
        dataset=dataset,
        min_seconds=min_seconds,
        clips=full_clips(dataset) if full else clips,
        frames=frames,
        repeats=5 if full else repeats,
        max_new_tokens=max_new_tokens,
        num_draft_tokens=num_draft_tokens,
        prune=prune,
        retention=retention,
        batch=batch,
        memory=memory,
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
    )
    result = run_bench(run, settings, json, debug)
    exit_on_bugs(arm for arm in result["arms"] if arm["mode"] == "exact")


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
        except SoonerError:
            raise
        except (OSError, ValueError, KeyError) as error:
            raise SoonerError(
                f"'{path}' is no result of `sooner bench`: {type(error).__name__} {error}; make "
                "one with --json"
            ) from error
        path.with_suffix(".md").write_text(page)
        for made in (path.with_suffix(".md"), *write_figures(result, path)):
            typer.echo(f"wrote {made}")
