"""The environments of `sooner act rollout` by name: a table, Meta-World and LIBERO.

Entry point of the group `sooner.environments`. Importing this loads no simulator.
"""

from __future__ import annotations

import re

from sooner.errors import SoonerError
from sooner.robots import Environment

TABLE = "table"
METAWORLD = ("reach", "push", "drawer-open")
LIBERO = "libero-"
NAMES = (*METAWORLD, "libero-goal/0", TABLE)
"""The names that are listed, one task standing for each of LIBERO's."""


def make(name: str) -> Environment | None:
    """Make the table, a task of Meta-World or of LIBERO (`libero-goal/3`); `None` for another name.

    Raises:
        SoonerError: the simulator is not installed, or the name is not of LIBERO's form.
    """
    if name.startswith(LIBERO):
        return _libero(name)
    if name == TABLE:
        from .table import TableEnvironment

        return TableEnvironment()
    if name not in METAWORLD:
        return None
    from .metaworld import MetaWorld

    return MetaWorld(name)


def _libero(name: str) -> Environment:
    from .libero import Libero

    match = re.fullmatch(r"libero-([a-z]+)/(\d+)", name)
    if match is None:
        raise SoonerError(
            f"environment is '{name}'; LIBERO's are named by suite and task, such as libero-goal/3"
        )
    return Libero(match[1], int(match[2]))
