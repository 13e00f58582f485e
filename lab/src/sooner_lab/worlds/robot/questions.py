"""Inputs on which a robot policy is recorded: moments of the experts' demonstrations."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from itertools import islice
from typing import Any

from sooner.robots.registry import TABLE, make

from ...robots import METAWORLD
from .collect import DemonstrationStep, demonstrate

logger = logging.getLogger("sooner")

ROWS = 32
"""Observations of a batch."""
SEED = 3_000_000
"""First episode, far from those of training and of evaluation."""


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
        records: list[DemonstrationStep] = list(islice(sources[name], ROWS))
        yield processor([record.picture for record in records], [instructions[name]] * ROWS)


def _instruction(name: str) -> str:
    world = make(name)
    try:
        return world.instruction
    finally:
        world.close()
