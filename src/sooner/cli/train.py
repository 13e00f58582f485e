"""`sooner train`: a draft head for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .from_settings import from_settings

commands = typer.Typer(help="Train draft heads.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(commands, name="train")


@commands.callback()
def _group() -> None:
    """Train draft heads."""


@commands.command()
@from_settings
def draft(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Gets data and head.")],
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
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="eagle, eagle3, dflash, mtp: as SGLang and vLLM read them."
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(metavar="I,J,K", help="For eagle3: hidden_states to read; 2, n/2, n - 3."),
    ] = None,
    draft_vocab_size: Annotated[
        int | None, typer.Option(metavar="N", help="For eagle3: tokens that it can draft.")
    ] = None,
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
    models: Annotated[options.Models, options.SINGLE_MODEL],
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Train a draft head for `Eagle`: record what the model says, then learn its states.

    The model stays as it is. Recording and training go on where they were interrupted.
    """
    from . import train_draft

    values = {
        "steps": steps, "lr": lr, "batch": batch, "warmup": warmup, "unroll": unroll, "seed": seed,
        "format": format, "layers": layers, "draft_vocab_size": draft_vocab_size,
    }  # fmt: skip
    recipe = train_draft.read_settings(settings, values)
    pair = models.load(debug, miniature=miniature)
    source = train_draft.PromptSource(data, samples, prompt, frames, max_new_tokens)
    recording = train_draft.recorded(pair, out, source, quiet, recipe)
    train_draft.train_head(pair, recording, out, recipe, resume, stop_after, quiet)
