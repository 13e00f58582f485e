"""`sooner bench parallel`: ParallelVLM's tables and figures, remade from real runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.cli import options
from sooner.errors import SoonerError, unknown
from sooner.io import check_writable

from .bench_parts import (
    Dataset,
    Json,
    MinSeconds,
    Retention,
    at_least_one,
    full_clips,
    measured,
    show_tables,
    videos,
)

if TYPE_CHECKING:
    from ..bench.parallel.settings import ParallelSettings

REPEATS = 3
"""Timed runs of each arm with `--full`."""


def parallel(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", help="Videos; by default held-out rendered clips."),
    ] = None,
    model: options.Model = None,
    draft: options.Draft = None,
    dataset: Dataset = None,
    min_seconds: MinSeconds = None,
    clips: Annotated[
        int, typer.Option(metavar="N", help="Clips to render, or samples to take.")
    ] = 2,
    judged: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Rendered clips that M is of, untimed ones included; by default 12, --full: 64.",
        ),
    ] = None,
    scenes: Annotated[int, typer.Option(metavar="N", help="Of a rendered clip.")] = 6,
    frames_per_scene: Annotated[
        int, typer.Option(metavar="K", help="Frames that models see of each rendered scene.")
    ] = 8,
    frames: options.Frames = None,
    repeats: Annotated[int, typer.Option(metavar="N", help="Timed runs of each arm.")] = 1,
    parts: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Only methods, lossy, sweep, timeline, memory."),
    ] = None,
    alphas: Annotated[
        str, typer.Option(metavar="A,A,...", help="Pruning ratios of the sweep.")
    ] = "0,0.5,0.7,0.8,0.9,0.95",
    criteria: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Only these criteria in the sweep.")
    ] = None,
    prune: Annotated[
        float, typer.Option(metavar="SHARE", help="Pruning ratio of every other arm.")
    ] = 0.9,
    retention: Retention = 0.1,
    window: Annotated[int, typer.Option(metavar="N", help="Of the `speculative` arm.")] = 5,
    max_new_tokens: options.MaxNewTokens = 256,
    placement: options.Placement = "auto",
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="12 clips (50 samples), 3 repeats, M of 64, plain on all cores too."
        ),
    ] = False,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw the figures there, as PNG and SVG.")
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the rendered clips.")] = 20_261_121,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Time every lossless and lossy method, sweep the pruning ratio, and watch both models at work.

    With --json every run is kept as it ends: the same command goes on with a study that was
    interrupted. Exits with 1 when an exact arm differs from plain decoding by more than a tie.
    """
    from ..bench.parallel.study import run

    if json is not None:
        check_writable(json)
    settings = _settings(
        model=model,
        draft=draft,
        files=tuple(videos(files, dataset)),
        dataset=dataset,
        min_seconds=min_seconds,
        clips=full_clips(dataset) if full else at_least_one("clips", clips),
        judged=_judged(judged, full),
        scenes=at_least_one("scenes", scenes),
        frames_per_scene=at_least_one("frames-per-scene", frames_per_scene),
        frames=frames,
        repeats=REPEATS if full else at_least_one("repeats", repeats),
        parts=_parts(parts),
        alphas=tuple(_share("alphas", part) for part in _split(alphas)),
        criteria=_criteria(criteria),
        prune=_share("prune", str(prune)),
        retention=retention,
        window=at_least_one("window", window),
        max_new_tokens=at_least_one("max-new-tokens", max_new_tokens),
        all_cores=full,
        placement=placement,
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
    )
    if plots is not None:
        _check_plots()
    result = measured(partial(_run, run, json), settings, debug)
    show(result)
    if json is not None:
        typer.echo(f"wrote {json}", err=True)
    if plots is not None:
        _draw(result, plots, "parallel" if json is None else json.stem)
    if any(arm.get("parity") == "bug" for arm in (*result["arms"], *result["sweep"])):
        raise typer.Exit(1)


def _run(run: Any, json: Path | None, settings: Any, progress: Any) -> dict[str, Any]:
    return run(settings, json, progress)


def show(result: dict[str, Any]) -> None:
    """Print every table of the result."""
    from ..bench.parallel.page import tables

    show_tables(tables(result))


def _settings(**given: Any) -> ParallelSettings:
    from ..bench.parallel.settings import ParallelSettings

    return ParallelSettings(**given)


def _check_plots() -> None:
    from ..bench.figures import check_matplotlib

    check_matplotlib()


def _draw(result: dict[str, Any], folder: Path, stem: str) -> None:
    from ..bench.parallel.plots import write_figures

    for name in write_figures(result, folder, stem):
        typer.echo(f"wrote {folder / name}", err=True)


def _judged(given: int | None, full: bool) -> int:
    from ..bench.parallel.settings import JUDGED, JUDGED_IN_FULL

    if given is None:
        return JUDGED_IN_FULL if full else JUDGED
    return at_least_one("judged", given)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parts(text: str | None) -> tuple[str, ...]:
    from ..bench.parallel.settings import PARTS

    return _known("part", PARTS if text is None else _split(text), PARTS)


def _criteria(text: str | None) -> tuple[Any, ...]:
    from sooner.methods.pruning import CRITERIA

    from ..bench.parallel.settings import SWEPT

    return _known("criterion", SWEPT if text is None else _split(text), CRITERIA)


def _known(what: str, names: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
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
