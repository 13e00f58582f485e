"""Environments for closed-loop rollouts by name: those that installed distributions such as
`sooner-lab`, which has simulators, add by an entry point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .errors import SoonerError, unknown
from .plugins import LAB, plugins

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
        """Returns the same state rendered for people, uint8 `[height, width, 3]`, both
        sides even.
        """

    def step(self, action: np.ndarray) -> StepResult:
        """Take one action, `[dims]` in the units of the robot, clipped to its range."""

    def close(self) -> None:
        """Close the simulator, and free its memory."""


def names() -> tuple[str, ...]:
    """Returns the names that `make` takes here; of LIBERO one task stands for each."""
    return tuple(name for module in plugins(GROUP) for name in module.NAMES)


def make(name: str) -> Environment:
    """Make the environment `name` of an installed distribution.

    Raises:
        SoonerError: an unknown name, or its simulator is not installed; no distribution with
            environments is installed.
    """
    for module in plugins(GROUP):
        if (environment := module.make(name)) is not None:
            return environment
    if not names():
        raise SoonerError(f"no environment is installed; pip install {LAB}")
    raise unknown("environment", name, names())
