"""Environments by name."""

from __future__ import annotations

import re

from ..errors import SoonerError, unknown
from .environment import Environment

METAWORLD = ("reach", "push", "drawer-open")
TABLE = "table"
LIBERO = "libero-"
KNOWN = (*METAWORLD, TABLE, "libero-goal/0")
"""All, one task standing for each of LIBERO's."""


def make(name: str) -> Environment:
    """The environment `name`: a task of Meta-World, `table`, or such as `libero-goal/3`.

    Raises:
        SoonerError: an unknown name, or its simulator is not installed.
    """
    if name == TABLE:
        from .table import TableEnvironment

        return TableEnvironment()
    if name.startswith(LIBERO):
        return _libero(name)
    if name not in METAWORLD:
        raise unknown("environment", name, KNOWN)
    from .metaworld import MetaWorld

    return MetaWorld(name)


def _libero(name: str) -> Environment:
    from .libero import Libero

    found = re.fullmatch(r"libero-([a-z]+)/(\d+)", name)
    if found is None:
        raise SoonerError(
            f"environment is '{name}'; LIBERO's are named by suite and task, such as libero-goal/3"
        )
    return Libero(found[1], int(found[2]))
