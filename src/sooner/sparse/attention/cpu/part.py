"""One head in one plane, as the kernels of this backend want it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from ...plane import Plane
from ...rows import pick
from ..partial import Partial, States
from .canvas import Canvas, canvas
from .stairs import Stairs


@dataclass(frozen=True, eq=False)
class Part:
    """One head's states in a plane, without the queries that see no key.

    Attributes:
        queries: `[queries, head_dim]`.
        keys, values: by rank, `[keys, head_dim]`.
        frontier: of each query, at least 0, never falling, `[queries]`.
        ramp: whether the frontier rises by one from query to query.
        scale: factor of the scores.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    frontier: Tensor
    ramp: bool
    scale: float

    def __len__(self) -> int:
        return len(self.frontier)

    def stairs(self, which: slice | Tensor, counts: Tensor, keys: slice) -> Stairs:
        """Some of the queries against the first `counts` of some of the keys."""
        seen, values = self.keys[keys], self.values[keys]
        if keys.step is not None:  # rows that lie apart would be read so many times
            seen, values = seen.contiguous(), values.contiguous()
        asked = self.queries[which]
        return Stairs(asked[None, None], seen[None, None], values[None, None], counts, self.scale)


def parts(
    states: States, plane: Plane, heads: Tensor, into: Partial
) -> Iterator[tuple[int, Part, Canvas]]:
    """Place among `heads`, states and canvas of each head; what is painted ends up in `into`."""
    blind = int((plane.frontier < 0).sum())
    slots, frontier = plane.queries[blind:], plane.frontier[blind:]
    if not len(slots) or not len(plane.keys):
        return
    ramp = bool((frontier.diff() == 1).all())
    read, keys, values = -1, states.keys, states.values
    for place, head in enumerate(heads.tolist()):
        if read != head // states.group:
            read = head // states.group
            keys = pick(states.keys[read], plane.keys)
            values = pick(states.values[read], plane.keys)
        part = Part(pick(states.queries[head], slots), keys, values, frontier, ramp, states.scale)
        with canvas(into, slice(head, head + 1), slots) as blank:
            yield place, part, Canvas(blank.output[0], blank.mass[0])
