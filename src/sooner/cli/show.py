"""`sooner show`: pictures of what attention heads look at."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SoonerError
from . import options
from .display import Display
from .from_settings import from_settings

commands = typer.Typer(help="Draw attention, and patterns of it.", no_args_is_help=True)
ATTENTION_FRAMES = 24
"""Frames of the generated clip: few enough that every query-key pair has a pixel."""


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(commands, name="show")


@commands.callback()
def _group() -> None:
    """Draw attention, and patterns of it."""


@commands.command()
def patterns(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Of `sooner search patterns`.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="PICTURE", help="A .png or .svg; else both."),
    ] = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Draw the pattern of every head, coloured by its kind."""
    from ..sparse.search.pictures import save, table_figure
    from ..sparse.table import PatternTable

    table = PatternTable.load(file)
    paths = save(lambda: table_figure(table), _stem(output, file.stem))
    for path in paths:
        Display(quiet).line(f"  saved '{path}'", "bold")


@commands.command()
@from_settings
def attention(
    *,
    layer: Annotated[int, typer.Option(metavar="L", help="From 0.")],
    head: Annotated[int, typer.Option(metavar="H", help="From 0.")],
    sample: Annotated[Path | None, typer.Option(metavar="CLIP", help="A video.")] = None,
    frames: options.Frames = None,
    fps: options.Fps = None,
    prompt: options.Prompt = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="PICTURE", help="A .png or .svg; else both."),
    ] = None,
    models: Annotated[options.Models, options.SINGLE_MODEL],
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Draw a head's attention as it is, and permuted by grid and by modality.

    Without --model, the video miniature; without --sample, a clip of its world.
    """
    from ..sparse.search.pictures import attention_figure, save
    from ..tasks.search import SearchCallbacks, SearchRequest, attention_map, generated_clip

    if models.model is not None and sample is None:
        raise SoonerError("no sample given; name a video with --sample")
    display = Display(quiet)
    with tempfile.TemporaryDirectory() as folder, display.job():
        display.stage("load")
        pair = models.load(debug)
        if sample is None:
            frames = ATTENTION_FRAMES if frames is None else frames
            sample = generated_clip(Path(folder), frames)
        wish = SearchRequest((sample,), frames, fps, prompt)
        callbacks = SearchCallbacks(display.decoded, display.stage)
        heat_map = attention_map(pair, wish, layer, head, callbacks)
    title = f"{Path(pair.target.name).name}, layer {layer}, head {head}"
    stem = _stem(output, f"attention-{layer}-{head}")
    for path in save(lambda: attention_figure(heat_map, title), stem):
        display.line(f"  saved '{path}'", "bold")


def _stem(output: Path | None, name: str) -> Path:
    return Path(name) if output is None else output
