"""Where results are painted: a view of the row's `Partial`, or a fresh one to be merged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ...rows import pick, span
from ..partial import Partial


@dataclass(frozen=True, eq=False)
class Canvas:
    """Attention of some queries over the keys seen so far.

    Attributes:
        output: `[..., queries, head_dim]`, fp32; zero where nothing was seen.
        mass: log-sum-exp, `[..., queries]`, fp32; minus infinity where nothing was seen.
    """

    output: Tensor
    mass: Tensor

    def rows(self, which: slice | Tensor) -> Canvas:
        """Some of the queries; a view if they are given as a slice."""
        return Canvas(self.output[..., which, :], self.mass[..., which])

    def put(self, output: Tensor, mass: Tensor) -> None:
        """Replace what is there."""
        self.output.copy_(output)
        self.mass.copy_(mass)

    def join(self, output: Tensor, mass: Tensor) -> None:
        """Merge attention over other keys. Each query has seen a key, here or there."""
        weight = torch.sigmoid(mass - self.mass)[..., None]
        self.output.lerp_(output.float(), weight)
        self.mass.copy_(torch.logaddexp(self.mass, mass))

    def classes(self, first: int, step: int, rows: int, width: int) -> Canvas:
        """A view of `width` neighbouring classes, see `classes`."""
        mass = self.mass.as_strided(
            (width, rows),
            (self.mass.stride(0), step * self.mass.stride(0)),
            self.mass.storage_offset() + first * self.mass.stride(0),
        )
        return Canvas(classes(self.output, first, step, rows, width), mass)


def classes(states: Tensor, first: int, step: int, rows: int, width: int) -> Tensor:
    """Every `step`-th row from `first`, from `first + 1`, ...: `[width, rows, head_dim]`, a view.

    Args:
        states: `[tokens, head_dim]`, with `tokens > first + width - 1 + step * (rows - 1)`.
    """
    along = states.stride(0)
    return states.as_strided(
        (width, rows, states.shape[1]),
        (along, step * along, 1),
        states.storage_offset() + first * along,
    )


@contextmanager
def canvas(into: Partial, heads: slice, slots: Tensor) -> Iterator[Canvas]:
    """A blank canvas `[heads, queries]` whose content ends up in `into`.

    It is a part of `into` itself if nothing stands there yet.
    """
    which = span(slots)
    if which is not None and bool((into.mass[heads, which] == -torch.inf).all()):
        yield Canvas(into.output[heads, which], into.mass[heads, which])
        return
    shape = (into.mass[heads].shape[0], len(slots))
    blank = Canvas(
        into.output.new_zeros(*shape, into.output.shape[-1]),
        into.mass.new_full(shape, -torch.inf),
    )
    yield blank
    before = Canvas(pick(into.output[heads], slots), pick(into.mass[heads, :, None], slots)[..., 0])
    before.join(blank.output, blank.mass)
    if which is None:
        into.output[heads, slots] = before.output
        into.mass[heads, slots] = before.mass
