"""`sooner show`: pictures of what attention heads look at."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SoonerError
from ..tasks.settings import CaptionSettings
from . import options
from .display import Display
from .from_settings import from_settings
from .search import SAMPLED

commands = typer.Typer(help="Draw attention, and patterns of it.", no_args_is_help=True)
ATTENTION_FRAMES = 24
"""Frames of the generated clip: few enough that every query-key pair has a pixel."""

Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="PICTURE", help="A .png or .svg; else both."),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(commands, name="show")


@commands.command()
def patterns(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Of `sooner search patterns`.")],
    output: Output = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Draw the pattern of every head, coloured by its kind."""
    from ..sparse.search.pictures import save, table_figure
    from ..sparse.table import PatternTable

    table = PatternTable.load(file)
    for path in save(lambda: table_figure(table), output or Path(file.stem)):
        Display(quiet).line(f"  saved '{path}'", "bold")


@commands.command()
@from_settings
def attention(
    *,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A video.")] = None,
    layer: Annotated[int, typer.Option(metavar="L", help="From 0.")],
    head: Annotated[int, typer.Option("--attention-head", metavar="H", help="From 0.")],
    sampling: Annotated[CaptionSettings, SAMPLED],
    output: Output = None,
    models: Annotated[options.Models, options.SINGLE_MODEL],
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Draw a head's attention as it is, and permuted by grid and by modality.

    Without --model, the video miniature; without a file, a clip of its world.
    """
    from ..sparse.search.pictures import attention_figure, save
    from ..tasks.search import SearchCallbacks, SearchRequest, attention_map, generated_clip

    if models.model is not None and file is None:
        raise SoonerError("no video given; name one")
    display, frames = Display(quiet), sampling.frames
    with tempfile.TemporaryDirectory() as folder, display.job():
        display.stage("load")
        pair = models.load(debug)
        if file is None:
            frames = frames or ATTENTION_FRAMES
            file = generated_clip(Path(folder), frames)
        wish = SearchRequest((file,), frames, sampling.fps, sampling.prompt)
        callbacks = SearchCallbacks(display.decoded, display.stage)
        heat_map = attention_map(pair, wish, layer, head, callbacks)
    title = f"{Path(pair.target.name).name}, layer {layer}, head {head}"
    stem = output or Path(f"attention-{layer}-{head}")
    for path in save(lambda: attention_figure(heat_map, title), stem):
        display.line(f"  saved '{path}'", "bold")
