"""Demonstrations: what the experts do with noise on all six axes, which is what a policy learns.

The noise is an Ornstein-Uhlenbeck process, as in continuous control (Lillicrap et al. 2016): it
pushes the hand off its way for some steps, so that the demonstrations show how to come back. On
top of it an axis leans to one side, to the other or to neither, each as likely, anew at every step.
So what is demonstrated has three modes on every axis, and a draft of another mode than the target's
is far off: without them nearly every draft is near.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sooner.io import replacing

from .experts import expert_action
from .gauges import ORDER, numbers
from .simulator import NAMES, ArmEnvironment

BIN = 2 / 255
"""Width of a bin of an action, whose range is that of the robot."""
PULL = 0.2
"""Share of the noise that a step takes back."""
KEYS = ("numbers", "tasks", "actions", "episodes")


@dataclass(frozen=True)
class ArmNoise:
    """Noise on the six axes of the hand; the fingers have none.

    Attributes:
        bins: standard deviation of the Ornstein-Uhlenbeck process, in bins.
        lean: bins by which an axis leans to a side where it does; 0: it never does.
        pull: share of the process that a step takes back.
    """

    bins: float
    lean: float = 0.0
    pull: float = PULL

    def first(self, rng: np.random.Generator) -> np.ndarray:
        """A draw of the process, `[7]`, in units of the action."""
        return self._shock(rng)

    def after(self, noise: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One step on, `[7]`."""
        kept = 1 - self.pull
        return kept * noise + (1 - kept**2) ** 0.5 * self._shock(rng)

    def leaning(self, rng: np.random.Generator) -> np.ndarray:
        """What a step leans by, `[7]`, in units of the action; independent of other steps."""
        lean = self.lean * BIN * rng.integers(-1, 2, len(NAMES))
        lean[-1] = 0.0
        return lean

    def _shock(self, rng: np.random.Generator) -> np.ndarray:
        shock = self.bins * BIN * rng.standard_normal(len(NAMES))
        shock[-1] = 0.0
        return shock


@dataclass(frozen=True)
class ArmEpisode:
    """An episode of `steps` actions.

    Attributes:
        numbers: what was seen before each, `[steps, NUMBERS]`.
        actions: `[steps, 7]`, the noise in them.
        success: the task was done.
    """

    numbers: np.ndarray
    actions: np.ndarray
    success: bool


def demonstrate(
    env: ArmEnvironment, seed: int, noise: ArmNoise, limit: int | None = None
) -> ArmEpisode:
    """One noisy episode of the expert, of at most `limit` actions if that is given."""
    rng = np.random.default_rng([seed, ORDER.index(env.name)])
    env.reset(seed)
    seen, taken, drift = [], [], noise.first(rng)
    while True:
        state = env.state()
        off = drift + noise.leaning(rng)
        action = np.clip(expert_action(env.name, state) + off, -1, 1)
        seen.append(numbers(env.name, state))
        taken.append(action.astype(np.float32))
        drift = noise.after(drift, rng)
        step = env.step(action)
        if step.over or len(taken) == limit:
            return ArmEpisode(np.stack(seen), np.stack(taken), step.success)


def collect(
    folder: Path,
    name: str,
    count: int,
    seed: int,
    noise: ArmNoise,
    tell: Callable[[int], None] = lambda done: None,
) -> None:
    """Write `count` episodes of a task into `folder`, unless they are there.

    Args:
        tell: told how many episodes there are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npz"
    if path.exists():
        return
    env, found = ArmEnvironment(name), []
    try:
        for number in range(count):
            tell(number)
            found.append(demonstrate(env, seed + number, noise))
    finally:
        env.close()
    steps = [len(one.actions) for one in found]
    with replacing(path) as part, part.open("wb") as file:
        np.savez(
            file,
            numbers=np.concatenate([one.numbers for one in found]),
            tasks=np.full(sum(steps), ORDER.index(name)),
            actions=np.concatenate([one.actions for one in found]),
            episodes=np.repeat(np.arange(count), steps),
            success=np.array([one.success for one in found]),
        )


def load(folder: Path) -> dict[str, np.ndarray]:
    """All records of `folder`, `KEYS` by name, tasks in the order of `ORDER`."""
    parts = [np.load(folder / f"{name}.npz") for name in ORDER]
    return {key: np.concatenate([part[key] for part in parts]) for key in KEYS}
