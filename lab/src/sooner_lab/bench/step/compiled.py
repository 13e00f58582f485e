"""How a callable compiles: graph breaks, and compilations behind the first of each bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.utils import counters


@dataclass(frozen=True)
class Compilation:
    """Attributes:
    graph_breaks: places at which tracing went back to Python.
    recompiles: graphs compiled after every bucket had been called once.
    graphs: all graphs.
    """

    graph_breaks: int
    recompiles: int
    graphs: int


def compilation(
    step: Callable[..., Any], buckets: Sequence[tuple[Any, ...]], times: int = 3
) -> Compilation:
    """Compile `step` for each bucket's arguments, then call it `times` more for each.

    Shapes are static, and nothing is generated (`aot_eager`), so this takes seconds. Dynamo's own
    caches are emptied before and after.
    """
    with _fresh_dynamo(), torch.no_grad():
        compiled = torch.compile(step, dynamic=False, backend="aot_eager")
        for arguments in buckets:
            compiled(*arguments)
        first = _graphs()
        for _ in range(times):
            for arguments in buckets:
                compiled(*arguments)
        return Compilation(_breaks(), _graphs() - first, _graphs())


def graph_breaks(step: Callable[..., Any], *arguments: Any) -> int:
    """Places at which `step(*arguments)` does not trace into one graph."""
    return compilation(step, [arguments], times=0).graph_breaks


def recompiles(step: Callable[..., Any], buckets: Sequence[tuple[Any, ...]], times: int = 3) -> int:
    """Graphs compiled when `step` is called again with arguments that it has seen."""
    return compilation(step, buckets, times).recompiles


def _breaks() -> int:
    """Not every break is counted under its name: one at a branch is only seen in where Python
    resumes, and a frame that is given up only in its reason."""
    kinds = (counters["graph_break"], counters["unimplemented"])
    return max(len(counters["resumes"]), *(sum(kind.values()) for kind in kinds))


def _graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


@contextmanager
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    try:
        yield
    finally:
        torch._dynamo.reset()
        counters.clear()
