"""The backend of CPUs."""

from __future__ import annotations

from torch import Tensor

from ...pairs import GridIndex, Index, LineIndex
from ...plane import Plane, pick
from ..partial import Partial, States
from ..reference import Reference
from .canvas import Stairs, canvas, supports
from .grid import grid
from .lines import lines


class Fused:
    """Permutes each pattern into dense blocks, runs torch's fused kernel on them, and merges.

    States that the kernel does not take go to the reference: other dtypes, values of another size
    than the keys.
    """

    name = "fused"

    def attend(
        self, states: States, plane: Plane, index: Index | None, heads: Tensor, into: Partial
    ) -> None:
        """Attends to the plane's pairs."""
        if not supports(states):
            Reference().attend(states, plane, index, heads, into)
        elif isinstance(index, LineIndex):
            lines(states, plane, index, heads, into)
        elif isinstance(index, GridIndex):
            grid(states, plane, index, heads, into)
        else:
            dense(states, plane, heads, into)


ROWS = 4096  # queries of a chunk: what its results need in memory


def dense(states: States, plane: Plane, heads: Tensor, into: Partial) -> None:
    """Attends to all causal pairs of a plane: all heads that share keys in one call."""
    blind = int((plane.frontier < 0).sum())
    slots, counts = plane.queries[blind:], plane.frontier[blind:] + 1
    if not len(slots) or not len(plane.keys):
        return
    for first, last in runs(heads.tolist(), states.group):
        keys = slice(first // states.group, (last - 1) // states.group + 1)
        shape = (keys.stop - keys.start, last - first)
        shared = (shape[0], shape[1] // shape[0])  # [kv_heads, query heads of each]
        stairs = Stairs(
            pick(states.queries[first:last], slots).unflatten(0, shared),
            _shared(states.keys[keys], plane, shared[1]),
            _shared(states.values[keys], plane, shared[1]),
            counts,
            states.scale,
        )
        with canvas(into, slice(first, last), slots) as blank:
            for chunk, output, lse in stairs.climb(ROWS):
                blank.rows(chunk).put(output.flatten(0, 1), lse.flatten(0, 1))


def _shared(states: Tensor, plane: Plane, group: int) -> Tensor:
    """Returns keys of a plane for each query head, `[kv_heads, group, keys, head_dim]`; nothing
    copied.
    """
    return pick(states, plane.keys)[:, None].expand(-1, group, -1, -1)


def runs(heads: list[int], group: int) -> list[tuple[int, int]]:
    """Returns heads as ranges `[first, last)` that hold whole groups, or stay inside one."""
    result: list[tuple[int, int]] = []
    for head in heads:
        if result and result[-1][1] == head and head % group:
            result[-1] = (result[-1][0], head + 1)
        else:
            result.append((head, head + 1))
    whole: list[tuple[int, int]] = []
    for first, last in result:
        complete = last - first == group
        if complete and whole and whole[-1][1] == first and not _partial(whole[-1], group):
            whole[-1] = (whole[-1][0], last)
        else:
            whole.append((first, last))
    return whole


def _partial(heads: tuple[int, int], group: int) -> bool:
    return (heads[1] - heads[0]) % group != 0
