"""Recorded observations: moments of the experts' episodes, on goals that no training has seen, or
a user's own recordings, which need no simulator."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sooner.errors import SoonerError
from sooner.robots import make
from sooner.tasks.act.observation import Observation, read_picture

EVERY = 7
"""Actions between two observations of an episode."""
FIRST = 5_000_000
"""Seeds of these episodes, far behind those of the demonstrations."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """An observation.

    Attributes:
        env: where it is from: an environment, or the file's name.
        seen: picture and instruction.
        action: what was done then, `[dims]` or `[horizon, dims]` in the action's own units;
            `None` where nobody wrote it down.
    """

    env: str
    seen: Observation
    action: np.ndarray | None = None


def record(envs: tuple[str, ...], count: int, seed: int) -> list[Recorded]:
    """`count` observations of each environment, from as many of its expert's episodes as it takes.

    Raises:
        SoonerError: an environment without a scripted expert.
    """
    return [observation for name in envs for observation in _record(name, count, seed)]


def read(path: Path) -> list[Recorded]:
    """Observations of a JSONL file: `image` (a path, relative to the file), `instruction`, and
    optionally `unnorm_key` and `action`.

    Raises:
        SoonerError: the file or a line of it can't be read; says which line.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SoonerError(f"observations '{path}' can't be read: {error}") from error
    records = [_line(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not records:
        raise SoonerError(f"observations '{path}' has no lines; give one observation a line")
    return records


def _line(path: Path, number: int, line: str) -> Recorded:
    try:
        record = json.loads(line)
        image, instruction = read_picture(path.parent / record["image"]), record["instruction"]
        action = None if record.get("action") is None else np.array(record["action"], np.float64)
        seen = Observation(image, instruction, record.get("unnorm_key"))
    except (ValueError, TypeError, KeyError, AttributeError, SoonerError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise SoonerError(f"line {number} of '{path}': {what}") from error
    return Recorded(path.stem, seen, action)


def _record(name: str, count: int, seed: int) -> list[Recorded]:
    world: Any = make(name)
    if not hasattr(world, "expert_action"):
        raise SoonerError(f"environment '{name}' has no expert to record; leave it out of --envs")
    seen: list[Recorded] = []
    episode = FIRST + seed
    try:
        while len(seen) < count:
            world.reset(episode)
            episode += 1
            done = step = 0
            while not done and len(seen) < count:
                action = world.expert_action()
                if step % EVERY == 0:
                    view = Observation(world.picture(), world.instruction)
                    seen.append(Recorded(name, view, action))
                done = world.step(action).over
                step += 1
    finally:
        world.close()
    return seen
