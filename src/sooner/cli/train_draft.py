"""The parts of `sooner train draft`: its settings, its recording, its head."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import typer

from .. import miniatures
from ..checks import check_whole
from ..errors import SoonerError, reason_of, unknown

LONGEST = 256
"""Tokens of an answer in words."""


@dataclass(frozen=True)
class PromptSource:
    """Where prompts come from, and how they are answered.

    Attributes:
        data: a user's files, a recording, or `None` for the miniature's own world.
        samples: prompts from that world.
        prompt, frames: what is asked about each file, and how much of it is seen.
        max_new_tokens: where an answer is cut; `None` is an action of a robot policy, 256 tokens
            of any other model.
    """

    data: Path | None
    samples: int
    prompt: str | None
    frames: int | None
    max_new_tokens: int | None


def read_settings(path: Path | None, values: Mapping[str, Any]) -> Any:
    """Returns the recipe of a JSON file, or the default one, with the flags that were given: of a
    head, or of a DFlash drafter.

    Raises:
        SoonerError: a file that can't be read; an unknown key, a value out of range.
    """
    from ..tasks.train_draft import HeadTraining
    from ..tasks.train_draft.settings import FORMATS

    config: Any = {}
    if path is not None:
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SoonerError(f"settings '{path}' can't be read: {reason_of(error)}") from error
        if not isinstance(config, dict):
            raise SoonerError(f"settings '{path}' must be one JSON object")
    flags = {name: value for name, value in values.items() if value is not None}
    kind = flags.get("format", config.get("format", "eagle"))
    if kind not in (known := (*FORMATS, "dflash")):
        raise unknown("format", str(kind), known)
    if kind == "dflash":
        from ..tasks.train_draft.block_training import BlockTraining

        return BlockTraining.of(
            {name: item for name, item in {**config, **flags}.items() if name != "format"}
        )
    if (layers := flags.get("layers")) is not None:
        try:
            flags["layers"] = tuple(int(number) for number in layers.split(","))
        except ValueError as error:
            raise SoonerError(
                f"--layers is '{layers}'; give three numbers, such as 2,16,29"
            ) from error
    return HeadTraining.of({**config, **flags})


def recorded(pair: Any, out: Path, source: PromptSource, quiet: bool, recipe: Any) -> Any:
    """Returns the recording to train on, made or continued if need be.

    Raises:
        SoonerError: nothing to ask the model, or files that can't be read.
    """
    from ..models import adapt
    from ..tasks.settings import CaptionSettings
    from ..tasks.train_draft import DataSet, HeadTraining, prompts, record
    from ..tasks.train_draft.training import recorded_layers

    if source.data is not None and (source.data / "index.json").is_file():
        return DataSet.open(source.data)
    longest = source.max_new_tokens
    if longest is None:
        longest = _answer(pair.target.model)
    settings = CaptionSettings(prompt=source.prompt, frames=source.frames, max_new_tokens=longest)
    if source.data is not None:
        batches = prompts.ask(prompts.read_questions(source.data), pair, settings)
    elif pair.miniature is not None:
        check_whole("samples", source.samples, 2)
        batches = miniatures.find(pair.miniature).function("ask")(pair, source.samples)
    else:
        raise SoonerError(
            f"model '{pair.target.name}' needs --data: a folder of videos, or JSONL of "
            "{video|image, prompt}"
        )

    done = count(1)

    def tell(index: dict[str, Any]) -> None:
        typer.echo(f"recorded batch {next(done)} of this run", err=True)

    target = adapt(pair.target.model)
    is_head = isinstance(recipe, HeadTraining)
    return record(
        target.model,
        batches,
        out / "data",
        longest,
        layers=recorded_layers(target, recipe) if is_head else recipe.config(target).layers,
        on_batch=None if quiet else tell,
    )


def _answer(model: Any) -> int:
    """Returns tokens of an answer: a policy's are counted, since no token ends them."""
    from ..models.openvla.config import OpenVLAConfig
    from ..models.openvla.statistics import ActionStatistics

    if not isinstance(model.config, OpenVLAConfig):
        return LONGEST
    known = model.config.norm_stats or {}
    dims = {ActionStatistics.choose(known, key).dims for key in known}
    return int(model.config.action_horizon * max(dims))


def train_head(
    pair: Any,
    recording: Any,
    out: Path,
    recipe: Any,
    resume: bool,
    stop_after: int | None,
    quiet: bool,
) -> None:
    """Train the head, and print its acceptance and where it was written."""
    from ..tasks.train_draft import HeadTraining, train
    from ..tasks.train_draft.block_training import train_blocks

    fit: Any = train if isinstance(recipe, HeadTraining) else train_blocks
    head = fit(
        pair.target.model,
        recording,
        out,
        recipe,
        resume=resume,
        progress=not quiet,
        stop_after=stop_after,
    )
    record = head.config.provenance
    chain = record["acceptance"]["chain"]
    typer.echo(
        f"head: {out / 'head'} after {record['step']} steps; held-out drafts of 1 to {len(chain)} "
        f"tokens hold {', '.join(f'{share:.0%}' for share in chain)}"
    )
