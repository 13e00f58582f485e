"""`sooner train`: a miniature from its recipe, or a draft head for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SoonerError, unknown
from . import options

commands = typer.Typer(help="Train miniatures and draft heads.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(commands, name="train")


@commands.callback()
def _group() -> None:
    """Train miniatures and draft heads."""


@commands.command()
def miniature(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Such as: document, image, motion, robot, video.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="By default miniature-NAME, here.")
    ] = None,
    part: Annotated[
        str | None, typer.Option(metavar="PART", help="Only this part, such as: target.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on from the last saved state, or anew.")
    ] = True,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Torch threads.")] = None,
    stop_after: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Leave after this many steps of a part.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Train the parts of a miniature in order; interrupted runs go on where they were saved."""
    recipe = find_recipe(name)
    parts = tuple(recipe.RECIPES)
    if part is not None and part not in parts:
        raise unknown("part", part, parts)
    folder = out if out is not None else Path(f"miniature-{name}")
    for one in parts if part is None else (part,):
        try:
            (folder / one).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SoonerError(f"folder '{folder}' can't be written: {error.strerror}") from error
        made = recipe.train(
            folder / one,
            recipe.RECIPES[one],
            resume=resume,
            threads=threads,
            progress=not quiet,
            stop_after=stop_after,
        )
        typer.echo(f"{one}: {made}" if made.exists() else f"{one}: stopped; --resume goes on")


@commands.command()
def draft(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Gets data and head.")],
    model: options.Model = None,
    miniature: Annotated[
        str, typer.Option(metavar="NAME", help="Without a model: video or robot.")
    ] = "video",
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|DIR",
            help="Prompts: a folder of videos, or JSONL of {video|image, prompt}; without it, the "
            "miniature's own world. A folder that holds a recording is used as it is.",
        ),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON of training settings.")
    ] = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="Optimiser steps.")] = None,
    lr: Annotated[float | None, typer.Option(metavar="X", help="Learning rate.")] = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Samples of a step.")] = None,
    warmup: Annotated[int | None, typer.Option(metavar="N", help="Warm-up steps.")] = None,
    unroll: Annotated[
        int | None, typer.Option(metavar="N", help="Steps on its own estimates; 1 is EAGLE-2's.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of weights, order, noise.")] = None,
    samples: Annotated[
        int, typer.Option(metavar="N", help="Prompts from a miniature's own world.")
    ] = 256,
    prompt: options.Prompt = None,
    frames: options.Frames = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="By default 256, or the tokens of a policy's action."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on from the last saved state, or anew.")
    ] = True,
    stop_after: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Leave after this many steps.")
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Train a draft head for `Eagle`: record what the model says, then learn its states.

    The model stays as it is. Recording and training go on where they were interrupted.
    """
    from . import train_draft

    given = {
        "steps": steps, "lr": lr, "batch": batch, "warmup": warmup, "unroll": unroll, "seed": seed,
    }  # fmt: skip
    recipe = train_draft.read_settings(settings, given)
    pair = options.load_models(model, None, device, dtype, threads, debug, miniature=miniature)
    asked = train_draft.Asked(data, samples, prompt, frames, max_new_tokens)
    recording = train_draft.recorded(pair, out, asked, quiet)
    train_draft.train_head(pair, recording, out, recipe, resume, stop_after, quiet)


def find_recipe(name: str) -> Any:
    """The recipe module of a miniature.

    Raises:
        SoonerError: no miniature of this name.
    """
    import importlib

    from .. import miniatures

    miniatures.find(name)
    return importlib.import_module(f"sooner.miniatures.{name}.recipe")
