"""Trains the policy of the world of the arm, and its draft head, by their recipes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from sooner.errors import SoonerError
from sooner.io import replacing
from sooner.methods.threads import torch_threads
from sooner.tasks.act.policy import Policy, load
from sooner.tasks.train_draft import HeadTraining, record
from sooner.tasks.train_draft import train as train_head
from sooner.tasks.train_draft.log import ProgressLine

from .. import lessons
from ..recipes import Options
from .gauges import ORDER, draw
from .learn_arm import FIXED, ArmLesson
from .recipe import TARGET, ArmHeadRecipe, ArmRecipe
from .rollouts import walk
from .simulator import NAMES, TASKS

ROWS = 32
"""Moments of a batch that is recorded."""


def train(
    out: Path | str, config: ArmRecipe | ArmHeadRecipe = TARGET, **options: Unpack[Options]
) -> Path:
    """Train one of the two and write its checkpoint folder.

    Args:
        out: see `lessons.train`; the head's target is in `target/checkpoint` beside it. Both get
            `data` too.
        config: the recipe, which says which one it is.
        options: see `lessons.train`.

    Returns:
        The checkpoint folder.

    Raises:
        SoonerError: `state.pt` is of another recipe; robosuite is not installed; the head's target
            is not trained.
    """
    out = Path(out)
    if isinstance(config, ArmHeadRecipe):
        return _train_head(out, config, **options)
    lesson = ArmLesson(out, config, options.get("progress", True))
    return lessons.train(out, config, lesson, FIXED, **options)


def _train_head(
    out: Path, config: ArmHeadRecipe, *, stop_after: int | None = None, **options: Any
) -> Path:
    target = out.parent / "target" / "checkpoint"
    if not (target / "config.json").is_file():
        raise SoonerError(f"no target at '{target}'; train it first: --part target")
    policy = load(str(target), dtype="float32")
    settings = HeadTraining.of({**config.settings, "seed": config.seed})
    with torch_threads(options.get("threads")):
        seen = _walked(out / "data.npz", policy, config, options.get("progress", True))
        data = record(policy.model, _batches(policy, seen), out / "data", len(NAMES))
    if not options.pop("resume", True):
        (out / "state.pt").unlink(missing_ok=True)
    begun = _steps(out)
    last = settings.steps if stop_after is None else min(settings.steps, begun + stop_after)
    stops = {round(share * settings.steps) for share in config.keep}
    for stop in sorted(one for one in {*stops, last} if begun < one <= last):
        train_head(policy.model, data, out, settings, stop_after=stop - begun, **options)
        begun = stop
        if stop in stops:
            kept = out / f"head-{round(100 * stop / settings.steps)}"
            shutil.copytree(out / "head", kept, dirs_exist_ok=True)
    return out / "head"


def _steps(out: Path) -> int:
    """That the head has gone through."""
    path = out / "state.pt"
    return int(torch.load(path, weights_only=True)["step"]) if path.is_file() else 0


def _walked(
    path: Path, policy: Policy, config: ArmHeadRecipe, progress: bool
) -> list[tuple[str, np.ndarray]]:
    """Moments of the target's own closed loops by task, `[moments, NUMBERS]` each; kept in `path`.

    Tasks take turns every `ROWS` moments, so that those held out are of all."""
    if not path.exists():
        found = {}
        with ProgressLine(progress) as line:
            for name in ORDER:
                seeds = range(config.data_seed, config.data_seed + config.episodes)
                tell = partial(lessons.show_count, line, f"rollouts of {name}", config.episodes)
                walks = walk(partial(policy.act, method="plain"), name, seeds, tell=tell)
                found[name] = np.concatenate([np.stack(one.numbers) for one in walks])
        kept: Any = found
        with replacing(path) as part, part.open("wb") as file:
            np.savez(file, **kept)
    seen = dict(np.load(path))
    starts = [(at, name) for name in ORDER for at in range(0, len(seen[name]), ROWS)]
    return [(name, seen[name][at : at + ROWS]) for at, name in sorted(starts)]


def _batches(policy: Policy, seen: list[tuple[str, np.ndarray]]) -> Iterator[Mapping[str, Any]]:
    for name, told in seen:
        yield policy.processor(list(draw(told)), [TASKS[name].instruction] * len(told))
