"""`sooner train`: a draft head for a model."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from ..tasks.train_draft.settings import (
    FORMATS,
    BlockTraining,
    HeadTraining,
    PromptSource,
    make_recipe,
)
from . import options
from .display import Display
from .from_settings import Fields, from_settings

HEAD_OPTIONS = Fields(without=("format",), only_explicit=True)
BLOCK_OPTIONS = Fields(only=("block_size", "anchors", "decay", "chain_rank"), only_explicit=True)

commands = typer.Typer(help="Train draft heads.", no_args_is_help=True)


@commands.command()
@from_settings
def draft(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Gets data and head.")],
    miniature: Annotated[
        str, typer.Option(metavar="NAME", help="Without a model: video or robot.")
    ] = "video",
    source: PromptSource,
    format: Annotated[
        str,
        typer.Option(metavar="NAME", help=f"What is trained: {', '.join(FORMATS)}."),
    ] = "eagle",
    head: Annotated[HeadTraining, HEAD_OPTIONS],
    blocks: Annotated[BlockTraining, BLOCK_OPTIONS],
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on from the last saved state, or anew.")
    ] = True,
    stop_after: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Leave after this many steps.")
    ] = None,
    models: Annotated[options.Models, options.SINGLE_MODEL],
    display: Display,
) -> None:
    """Train a draft head for `Eagle`: record what the model says, then learn its states.

    The model stays as it is. Recording and training go on where they were interrupted. The defaults
    are those of the format eagle.
    """
    # from_settings hands these two as what was given of them
    recipe = make_recipe(format, {**head, **blocks})  # type: ignore[dict-item]
    from ..tasks.train_draft.recording import record_answers
    from ..tasks.train_draft.training import train

    with display.loading():
        pair = models.load(miniature=miniature, sees=False)
    done = count(1)

    def report(index: dict[str, Any]) -> None:
        if not display.quiet:
            typer.echo(f"recorded batch {next(done)} of this run", err=True)

    recording = record_answers(pair, out / "data", source, recipe, report)
    made = train(
        pair.target.model, recording, out, recipe, resume=resume, progress=not display.quiet,
        stop_after=stop_after,
    )  # fmt: skip
    record = made.config.provenance
    chain = record["acceptance"]["chain"]
    typer.echo(
        f"head: {out / 'head'} after {record['step']} steps; held-out drafts of 1 to {len(chain)} "
        f"tokens hold {', '.join(f'{share:.0%}' for share in chain)}"
    )
