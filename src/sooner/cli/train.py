"""`sooner train`: a draft head for a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import miniatures
from ..checks import check_choice, option
from ..errors import SoonerError
from ..tasks.train_draft.settings import FORMATS, BlockTraining, HeadTraining, Recipe
from . import options
from .from_settings import Fields, from_settings

LONGEST = 256
"""Tokens of an answer in words."""

OF_HEAD = Fields(without=("format",), given=True)
OF_BLOCKS = Fields(only=("block_size", "anchors", "decay"), given=True)

commands = typer.Typer(help="Train draft heads.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(commands, name="train")


@commands.callback()
def _group() -> None:
    """Train draft heads."""


@dataclass(frozen=True, kw_only=True)
class PromptSource:
    """Where prompts come from, and how they are answered.

    Attributes:
        data: folder of videos, or JSONL of `{video|image, prompt}`; by default the miniature's own
            world. A folder that holds a recording is used as it is.
        samples: prompts from a miniature's own world.
        prompt: what is asked about each file.
        frames: frames of each video.
        max_new_tokens: where an answer is cut; by default 256, or the tokens of a policy's action.
    """

    data: Path | None = option(None, metavar="FILE|DIR")
    samples: int = option(256, 2)
    prompt: str | None = None
    frames: int | None = option(None, 1)
    max_new_tokens: int | None = option(None, 1)


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
        typer.Option(metavar="NAME", help=f"{', '.join(FORMATS)}: as SGLang and vLLM read them."),
    ] = "eagle",
    head: Annotated[HeadTraining, OF_HEAD],
    blocks: Annotated[BlockTraining, OF_BLOCKS],
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

    The model stays as it is. Recording and training go on where they were interrupted. The defaults
    are those of the format eagle.
    """
    # from_settings hands these two as what was given of them
    recipe = make_recipe(format, {**head, **blocks})  # type: ignore[dict-item]
    pair = models.load(debug, miniature=miniature)
    recording = recorded(pair, out, source, quiet, recipe)
    from ..tasks.train_draft.training import train

    made = train(
        pair.target.model,
        recording,
        out,
        recipe,
        resume=resume,
        progress=not quiet,
        stop_after=stop_after,
    )
    record = made.config.provenance
    chain = record["acceptance"]["chain"]
    typer.echo(
        f"head: {out / 'head'} after {record['step']} steps; held-out drafts of 1 to {len(chain)} "
        f"tokens hold {', '.join(f'{share:.0%}' for share in chain)}"
    )


def make_recipe(kind: str, values: Mapping[str, Any]) -> Recipe:
    """Returns the recipe of a format with the values that were given.

    Raises:
        SoonerError: an unknown format, a value out of range, or of another format.
    """
    check_choice("format", kind, FORMATS)
    if kind != "dflash":
        return HeadTraining.of({"format": kind, **values})
    layers = values.get("layers", (BlockTraining.layers,))
    if len(layers) != 1:
        raise SoonerError("--layers of dflash is how many the drafter has; give one number")
    return BlockTraining.of({**values, "layers": layers[0]})


def recorded(pair: Any, out: Path, source: PromptSource, quiet: bool, recipe: Recipe) -> Any:
    """Returns the recording to train on, made or continued if need be.

    Raises:
        SoonerError: nothing to ask the model, or files that can't be read.
    """
    from ..models import adapt
    from ..tasks.settings import CaptionSettings
    from ..tasks.train_draft import prompts
    from ..tasks.train_draft.dataset import DataSet
    from ..tasks.train_draft.recording import record
    from ..tasks.train_draft.training import recorded_layers

    if source.data is not None and (source.data / "index.json").is_file():
        return DataSet.open(source.data)
    longest = source.max_new_tokens or _answer(pair.target.model)
    settings = CaptionSettings(prompt=source.prompt, frames=source.frames, max_new_tokens=longest)
    if source.data is not None:
        batches = prompts.ask(prompts.read_questions(source.data), pair, settings)
    elif pair.miniature is not None:
        batches = miniatures.find(pair.miniature).function("ask")(pair, source.samples)
    else:
        raise SoonerError(
            f"model '{pair.target.name}' needs --data: a folder of videos, or JSONL of "
            "{video|image, prompt}"
        )
    done = count(1)

    def report(index: dict[str, Any]) -> None:
        if not quiet:
            typer.echo(f"recorded batch {next(done)} of this run", err=True)

    target = adapt(pair.target.model)
    layers = recorded_layers(target, recipe)
    return record(target.model, batches, out / "data", longest, layers=layers, on_batch=report)


def _answer(model: Any) -> int:
    """Returns tokens of an answer: a policy's are counted, since no token ends them."""
    from ..models.openvla.config import OpenVLAConfig
    from ..models.openvla.statistics import ActionStatistics

    if not isinstance(model.config, OpenVLAConfig):
        return LONGEST
    known = model.config.norm_stats or {}
    dims = {ActionStatistics.choose(known, key).dims for key in known}
    return int(model.config.action_horizon * max(dims))
