"""Draft processes that a module's tests start; those of earlier modules are none of them."""

from __future__ import annotations

import gc
import multiprocessing
from typing import Any

EXISTING: set[Any] = set()
"""Standing drafts of pairs that earlier tests left to the garbage collector, or that still live."""


def snapshot_children() -> None:
    """Let `children` tell of the processes that start from now on."""
    gc.collect()
    EXISTING.clear()
    EXISTING.update(multiprocessing.active_children())


def children() -> list[Any]:
    """Living processes of this module; multiprocessing's resource tracker is none of them."""
    return [child for child in multiprocessing.active_children() if child not in EXISTING]
