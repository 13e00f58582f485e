"""Inputs on which a robot policy is recorded: moments of the experts' demonstrations."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from sooner.robots import make

from ...robots import METAWORLD, TABLE

logger = logging.getLogger("sooner")

ROWS = 32
"""Observations of a batch."""
SEED = 3_000_000
"""First episode, far from those of training and of evaluation."""
HORIZON = 2
"""Actions of the expert between two pictures."""
NAMES = ("reach", "push", "drawer-open", "table")
LONGEST = {"reach": 100, "push": 150, "drawer-open": 150, "table": 100}
"""Actions of a demonstration, disturbances included."""


def worlds() -> tuple[str, ...]:
    """The environments that are available here: Meta-World's where it is installed, and `table`."""
    if importlib.util.find_spec("metaworld") is not None:
        return (*METAWORLD, TABLE)
    logger.warning("Meta-World is not installed: prompts come from the 'table' world alone")
    return (TABLE,)


def ask(pair: Any, samples: int) -> Iterator[dict[str, Any]]:
    """Processed inputs of moments of `worlds()`; `pair` is a `sooner.tasks.loading.ModelPair`."""
    return ask_demonstrations(pair.target.processor, samples)


def ask_demonstrations(
    processor: Any, samples: int, names: tuple[str, ...] | None = None
) -> Iterator[dict[str, Any]]:
    """Processed inputs of moments that the experts pass through, pushed off their way or not.

    Args:
        processor: the policy's.
        samples: observations, rounded up to whole batches.
        names: environments in turn, a batch each; by default `worlds()`.
    """
    names = worlds() if names is None else names
    instructions = {name: _instruction(name) for name in names}
    sources = {name: demonstrate(name, SEED) for name in names}
    for number in range(-(-samples // ROWS)):
        name = names[number % len(names)]
        yield processor(list(islice(sources[name], ROWS)), [instructions[name]] * ROWS)


def _instruction(name: str) -> str:
    world = make(name)
    try:
        return world.instruction
    finally:
        world.close()


def demonstrate(name: str, seed: int) -> Iterator[np.ndarray]:
    """Yield pictures of task `name` without end; episodes count up from `seed`.

    Between two pictures the hand is pushed off its way at times, as in DART (Laskey et al. 2017)
    and more roughly, and the scripted expert comes back.
    """
    env: Any = make(name)
    rng = np.random.default_rng([seed, NAMES.index(name)])
    episode = seed
    while True:
        env.reset(episode)
        episode += 1
        yield from _episode(env, rng)


def _episode(env: Any, rng: np.random.Generator) -> Iterator[np.ndarray]:
    rough = rng.random() < 0.6  # the others show what an undisturbed episode looks like
    after, steps = 0, 0
    while steps < LONGEST[env.name] and after < 4:
        if rough and rng.random() < 0.3:
            steps += _disturb(env, rng)
        picture = env.picture()
        for _ in range(HORIZON):
            after += env.step(env.expert_action()).success  # a few behind success: stay there
        steps += HORIZON
        yield picture


def _disturb(env: Any, rng: np.random.Generator) -> int:
    """Push the hand somewhere for a while; returns the steps that took."""
    push, steps = rng.uniform(-1, 1, 3), int(rng.integers(1, 9))
    for _ in range(steps):
        grip = env.expert_action()[3]
        shove = np.clip(push + rng.normal(0, 0.3, 3), -1, 1)
        env.step(np.append(shove * env.action_high[:3], grip))
    return steps
