"""The interface of a simulated environment: observation, step, reset and success."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


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
