"""Demonstrations: what the scripted experts do, from many states, with its picture.

A record is a picture and the next two actions of the expert, which are then taken. Between records
the hand is pushed off its way, as in DART (Laskey et al. 2017) and more roughly, so that the policy
sees how to come back; what it learns is always the expert's own answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sooner.io import replacing
from sooner.robots.registry import make

HORIZON = 2
NAMES = ("reach", "push", "drawer-open", "table")
SHARD = 2000
LONGEST = {"reach": 100, "push": 150, "drawer-open": 150, "table": 100}
"""Actions of a demonstration, disturbances included."""
KEYS = ("pictures", "tasks", "actions", "points", "places")


@dataclass(frozen=True)
class DemonstrationStep:
    """One moment of a demonstration.

    Attributes:
        picture: uint8 `[112, 112, 3]`.
        task: index into `NAMES`.
        actions: the expert's next actions, `[HORIZON, 4]` in the environment's units.
        points: hand, object and goal in metres, `[3, 3]`.
        places: where they are in the picture's halves, `[2, 3, (row, column)]`.
    """

    picture: np.ndarray
    task: int
    actions: np.ndarray
    points: np.ndarray
    places: np.ndarray


def demonstrate(name: str, seed: int) -> Iterator[DemonstrationStep]:
    """Records of task `name` without end; episodes count up from `seed`."""
    env: Any = make(name)
    rng = np.random.default_rng([seed, NAMES.index(name)])
    episode = seed
    while True:
        env.reset(episode)
        episode += 1
        yield from _episode(env, rng)


def _episode(env: Any, rng: np.random.Generator) -> Iterator[DemonstrationStep]:
    rough = rng.random() < 0.6  # the others show what an undisturbed episode looks like
    after, steps = 0, 0
    while steps < LONGEST[env.name] and after < 4:
        if rough and rng.random() < 0.3:
            steps += _disturb(env, rng)
        seen = env.picture(), env.points(), env.project()
        actions = []
        for _ in range(HORIZON):
            actions.append(env.expert_action())
            after += env.step(actions[-1]).success  # a few records behind success: stay there
        steps += HORIZON
        yield DemonstrationStep(seen[0], NAMES.index(env.name), np.stack(actions), *seen[1:])


def _disturb(env: Any, rng: np.random.Generator) -> int:
    """Push the hand somewhere for a while; returns the steps that took."""
    push, steps = rng.uniform(-1, 1, 3), int(rng.integers(1, 9))
    for _ in range(steps):
        grip = env.expert_action()[3]
        shove = np.clip(push + rng.normal(0, 0.3, 3), -1, 1)
        env.step(np.append(shove * env.action_high[:3], grip))
    return steps


def collect(
    folder: Path, name: str, count: int, seed: int, tell: Callable[[int], None] = lambda done: None
) -> None:
    """Write `count` records of task `name` as shards into `folder`; shards that are there stay.

    Args:
        tell: told how many records there are, shard by shard.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}-{number:03}.npz" for number in range(-(-count // SHARD))]
    for number, path in enumerate(paths):
        tell(number * SHARD)
        if path.exists():
            continue
        source = demonstrate(name, seed + 100_000 * number)
        records = [next(source) for _ in range(min(SHARD, count - number * SHARD))]
        with replacing(path) as part, part.open("wb") as file:
            np.savez(
                file,
                pictures=np.stack([step.picture for step in records]),
                tasks=np.array([step.task for step in records]),
                actions=np.stack([step.actions for step in records]).astype(np.float32),
                points=np.stack([step.points for step in records]).astype(np.float32),
                places=np.stack([step.places for step in records]).astype(np.float32),
            )


def load(folder: Path) -> dict[str, np.ndarray]:
    """All records of `folder`, `KEYS` by name, in the order of their files."""
    parts = [np.load(path) for path in sorted(folder.glob("*.npz"))]
    return {key: np.concatenate([part[key] for part in parts]) for key in KEYS}
