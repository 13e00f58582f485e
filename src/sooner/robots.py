"""Environments for closed-loop rollouts by name: what installed distributions add, simulators
(`sooner-lab`) by an entry point and the worlds of miniatures with them."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Protocol

import numpy as np

from .errors import unknown
from .plugins import plugins

GROUP = "sooner.environments"


@dataclass(frozen=True)
class StepResult:
    """What one action has led to.

    Attributes:
        success: the task is done.
        over: the episode has ended, by success or because its steps are used up.
    """

    success: bool
    over: bool


class Environment(Protocol):
    """One robot that has one task.

    Attributes:
        name: such as `reach`.
        instruction: what the policy is told.
        max_steps: actions of an episode.
    """

    name: str
    instruction: str
    max_steps: int

    def reset(self, seed: int) -> None:
        """A new episode; the same seed gives the same one."""

    def picture(self) -> np.ndarray:
        """Returns what the policy sees now, uint8 `[height, width, 3]`."""

    def film_frame(self) -> np.ndarray:
        """Returns the state rendered for people, uint8 `[height, width, 3]` with even sides."""

    def step(self, action: np.ndarray) -> StepResult:
        """Take one action, `[dims]` in the units of the robot, clipped to its range."""

    def close(self) -> None:
        """Close the simulator, and free its memory."""


def names() -> tuple[str, ...]:
    """Returns the names that `make` takes here; of LIBERO one task stands for each."""
    return (*(name for module in plugins(GROUP) for name in module.NAMES), *_bundled())


def _bundled() -> dict[str, str]:
    """Returns `module:class` of the environments that miniatures bring, by name."""
    entries = (entry for group in plugins("sooner.miniatures") for entry in group.values())
    return {name: kind for entry in entries for name, kind in entry.environments.items()}


def make(name: str) -> Environment:
    """Make the environment `name`.

    Raises:
        SoonerError: an unknown name, or its simulator is not installed.
    """
    if (kind := _bundled().get(name)) is not None:
        environment: Environment = resolve_name(kind)()
        return environment
    for module in plugins(GROUP):
        if (made := module.make(name)) is not None:
            return made
    raise unknown("environment", name, names())
