"""What other installed distributions add to the library, found by their entry points.

`sooner-miniatures` adds trained models this way, `sooner-lab` commands and environments of robots;
so can anyone. Groups:

| group | an entry point is |
|---|---|
| `sooner.commands` | a module with `register(app)`, `app` the `typer` application of `sooner` |
| `sooner.miniatures` | a mapping of names to `sooner.miniatures.Miniature` |
| `sooner.worlds` | for names of miniatures, a mapping of functions' names to `module:function` |
| `sooner.checkpoints` | a mapping of model names to functions that return a checkpoint's folder |
| `sooner.environments` | a module with `NAMES` and `make(name) -> Environment | None` |
| `sooner.methods` | a method's class, which `sooner.registry` imports when it is used |

A function of `sooner.checkpoints` may have an attribute `is_installed`, false where it would fail.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

LAB = "sooner-lab"
"""The distribution with the worlds of the miniatures, benchmarks and data sets."""
WEIGHTS = "sooner-miniatures"
"""The distribution with the trained miniatures."""


@cache
def plugins(group: str) -> tuple[Any, ...]:
    """Returns what installed distributions declare in a group, by the names of their entries."""
    return tuple(
        entry.load() for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)
    )
