"""Environments for closed-loop rollouts by name: a table drawn by numpy, and what installed
distributions such as `sooner-lab`, which has simulators, add by an entry point.
"""

from __future__ import annotations

from ..errors import unknown
from ..plugins import plugins
from .environment import Environment, StepResult

__all__ = ["Environment", "StepResult", "make", "names"]

TABLE = "table"
GROUP = "sooner.environments"


def names() -> tuple[str, ...]:
    """Returns the names that `make` takes here; of LIBERO one task stands for each."""
    return (*(name for module in plugins(GROUP) for name in module.NAMES), TABLE)


def make(name: str) -> Environment:
    """Make the environment `name`: `table`, or what a distribution such as `sooner-lab` adds.

    Raises:
        SoonerError: an unknown name, or its simulator is not installed.
    """
    if name == TABLE:
        from .table import TableEnvironment

        return TableEnvironment()
    for module in plugins(GROUP):
        if (environment := module.make(name)) is not None:
            return environment
    raise unknown("environment", name, names())
