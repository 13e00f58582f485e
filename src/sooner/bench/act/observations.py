"""Recorded observations: moments of the experts' episodes, on goals that no training has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import SoonerError
from ...robots.registry import make
from ...tasks.act.observation import Observation

EVERY = 7
"""Actions between two observations of an episode."""
FIRST = 5_000_000
"""Seeds of these episodes, far behind those of the demonstrations."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """An observation, and the environment that it is from."""

    env: str
    seen: Observation


def record(envs: tuple[str, ...], count: int, seed: int) -> list[Recorded]:
    """`count` observations of each environment, from as many of its expert's episodes as it takes.

    Raises:
        SoonerError: an environment without a scripted expert.
    """
    return [Recorded(name, seen) for name in envs for seen in _record(name, count, seed)]


def _record(name: str, count: int, seed: int) -> list[Observation]:
    world: Any = make(name)
    if not hasattr(world, "expert_action"):
        raise SoonerError(f"environment '{name}' has no expert to record; leave it out of --envs")
    seen: list[Observation] = []
    episode = FIRST + seed
    try:
        while len(seen) < count:
            world.reset(episode)
            episode += 1
            done = step = 0
            while not done and len(seen) < count:
                if step % EVERY == 0:
                    seen.append(Observation(world.picture(), world.instruction))
                done = world.step(world.expert_action()).over
                step += 1
    finally:
        world.close()
    return seen
