"""`sooner bench parallel`: ParallelVLM's tables and figures, remade from real runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sooner.cli import options
from sooner.errors import SoonerError, unknown

from .bench_parts import (
    SEED,
    ClipSeed,
    Dataset,
    Json,
    MaxNewTokens,
    MinSeconds,
    NumDraftTokens,
    Placement,
    Repeats,
    Retention,
    Videos,
    count,
    exit_on_bugs,
    full_clips,
    listed,
    run_bench,
    videos,
)

REPEATS = 3
"""Timed runs of each arm with `--full`."""


def parallel(
    files: Videos = None,
    model: options.Model = None,
    draft: options.Draft = None,
    dataset: Dataset = None,
    min_seconds: MinSeconds = None,
    clips: Annotated[int, count("Clips to render, or samples to take.")] = 2,
    scenes: Annotated[int, count("Of a rendered clip.")] = 6,
    frames_per_scene: Annotated[
        int, count("Frames that models see of each rendered scene.", "K")
    ] = 8,
    frames: options.Frames = None,
    repeats: Repeats = 1,
    parts: Annotated[str | None, listed("Only methods, lossy, sweep.")] = None,
    alphas: Annotated[
        str, typer.Option(metavar="A,A,...", help="Pruning ratios of the sweep.")
    ] = "0,0.5,0.7,0.8,0.9,0.95",
    criteria: Annotated[str | None, listed("Only these criteria in the sweep.")] = None,
    prune: Annotated[
        float, typer.Option(metavar="SHARE", help="Pruning ratio of every other arm.")
    ] = 0.9,
    retention: Retention = 0.1,
    num_draft_tokens: NumDraftTokens = 5,
    max_new_tokens: MaxNewTokens = 256,
    placement: Placement = "auto",
    full: Annotated[
        bool,
        typer.Option("--full", help="12 clips (50 samples), 3 repeats, plain on all cores too."),
    ] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    seed: ClipSeed = SEED,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time every lossless and lossy method, and sweep the pruning ratio.

    With --json every run is kept as it ends: the same command goes on with a study that was
    interrupted. Exits with 1 when an exact arm differs from plain decoding by more than a tie.
    """
    from sooner.methods.pruning import CRITERIA

    from ..bench.parallel.settings import PARTS, SWEPT, ParallelSettings

    settings = ParallelSettings(
        model=model,
        draft=draft,
        files=tuple(videos(files, dataset)),
        dataset=dataset,
        min_seconds=min_seconds,
        clips=full_clips(dataset) if full else clips,
        scenes=scenes,
        frames_per_scene=frames_per_scene,
        frames=frames,
        repeats=REPEATS if full else repeats,
        parts=PARTS if parts is None else _known("part", parts, PARTS),
        alphas=tuple(_share("alphas", part) for part in _split(alphas)),
        criteria=SWEPT if criteria is None else _known("criterion", criteria, CRITERIA),
        prune=_share("prune", str(prune)),
        retention=retention,
        num_draft_tokens=num_draft_tokens,
        max_new_tokens=max_new_tokens,
        all_cores=full,
        placement=placement,
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
    )
    from ..bench.parallel.study import run

    result = run_bench(run, settings, json, debug, words=1, json_file=json)
    exit_on_bugs((*result["arms"], *result["sweep"]))


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _known(what: str, text: str, known: tuple[str, ...]) -> tuple[Any, ...]:
    """The names of a list that commas separate, in its order.

    Raises:
        SoonerError: a name that is not known.
    """
    names = _split(text)
    for name in names:
        if name not in known:
            raise unknown(what, name, known)
    return tuple(names)


def _share(option: str, text: str) -> float:
    """A pruning ratio of 0 up to, not including, 1.

    Raises:
        SoonerError: no number, or one outside.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise SoonerError(f"--{option} has '{text}'; a pruning ratio lies in 0 to 1")
    return value
