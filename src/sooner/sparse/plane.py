"""Planes: rectangles of the attention map, permuted so that a pattern is regular inside them.

A plane is a set of queries against a set of keys, each kept in the order of the prompt. A pattern
is a function of two numbers only: a query's *frontier* (how many of the plane's keys it may see,
minus one) and a key's *rank* (its place among the plane's keys). In the plane of the whole prompt
both are positions, and `frontier - rank` is the distance that slash lines keep. When tokens are
grouped by modality, distances count tokens of the key's modality back from the query. So one
definition of every pattern serves all boundaries, and causality is the same comparison everywhere:
`rank <= frontier`, which is causality of the original positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .modality import PromptLayout

BLOCK = 64  # queries that share the keys that slash lines need


def span(slots: Tensor) -> slice | None:
    """Ascending slots as a slice, if there is no gap among them."""
    if not len(slots):
        return slice(0, 0)
    first, last = int(slots[0]), int(slots[-1])
    return slice(first, last + 1) if last - first + 1 == len(slots) else None


def pick(states: Tensor, slots: Tensor) -> Tensor:
    """Returns some rows of `[..., tokens, head_dim]`, given by ascending slots."""
    which = span(slots)
    return states.index_select(-2, slots) if which is None else states[..., which, :]


@dataclass(frozen=True, eq=False)
class Plane:
    """Queries that attend to keys (MMInference, figures 8 and 9: permutations, not materialised).

    Attributes:
        queries: slots in the prompt, ascending, `[queries]`.
        keys: slots in the prompt, ascending, `[keys]`.
        frontier: rank of the last key each query may see, never falling, -1 for none, `[queries]`.
        period: ranks from the first token of a video frame to that of the next, 0 if there are no
            two frames in a row among the keys. Where they differ, the one that most ranks have.
        sizes: keys of a frame, each size once, the one with most keys first.
        later: queries of the prompt's plane behind these, if these are a chunk's.
    """

    queries: Tensor
    keys: Tensor
    frontier: Tensor
    period: int = 0
    sizes: tuple[int, ...] = ()
    later: int = 0

    def chunk(self, start: int, end: int) -> Plane:
        """Returns the queries in slots `start` to `end`, counted from there, and their keys."""
        ends = self.queries.new_tensor([start, end])
        first, last = torch.searchsorted(self.queries, ends).tolist()
        return replace(
            self,
            queries=self.queries[first:last] - start,
            keys=self.keys[: int(torch.searchsorted(self.keys, ends[1]))],
            frontier=self.frontier[first:last],
            later=len(self.queries) - last,
        )

    @cached_property
    def is_whole(self) -> bool:
        """Nothing is permuted or left out: slots are ranks."""
        last = int(self.keys[-1]) if len(self.keys) else -1
        return last == len(self.keys) - 1 and torch.equal(self.queries, self.keys)

    @cached_property
    def pairs(self) -> int:
        """Query-key pairs under causality: what dense attention computes here."""
        return int((self.frontier + 1).sum())

    @cached_property
    def blind(self) -> int:
        """Returns how many queries see no key; they are the first."""
        return int((self.frontier < 0).sum())

    @cached_property
    def is_distinct(self) -> bool:
        """Whether no two queries that see a key share a frontier."""
        return bool((self.frontier[self.blind :].diff() > 0).all())


@dataclass(frozen=True, eq=False)
class PlaneStack:
    """Planes on top of each other, so that one launch serves heads of all of them.

    Attributes:
        planes: of a prompt.
        cache: what was laid out of them; all layers of a prefill share it.
    """

    planes: tuple[Plane, ...]
    cache: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def width(self) -> int:
        """Returns the keys of the widest plane."""
        return max(len(plane.keys) for plane in self.planes)

    @cached_property
    def length(self) -> int:
        """Returns the queries of the longest plane."""
        return max(len(plane.queries) for plane in self.planes)

    @cached_property
    def moves_keys(self) -> bool:
        """Whether keys of any plane do not stand at their ranks."""
        ends = ((len(plane.keys), plane.keys) for plane in self.planes)
        return any(count and int(keys[-1]) != count - 1 for count, keys in ends)

    @cached_property
    def rank(self) -> Tensor:
        """Returns numbers from minus to plus the ranks of the widest plane and a block more."""
        end = self.width + BLOCK
        return torch.arange(-end, end, device=self.planes[0].keys.device)


def stack_of(layouts: Sequence[PromptLayout], regions: tuple[tuple[int, str], ...]) -> PlaneStack:
    """Returns the planes of some regions, each of a row, made once for these layouts."""
    cache, key = layouts[0].cache, (regions, *layouts[1:])
    if key not in cache:
        cache[key] = PlaneStack(tuple(plane_of(layouts[row], name) for row, name in regions))
    return cache[key]


def whole(layout: PromptLayout) -> Plane:
    """Returns all tokens against all tokens: heads without a boundary, or one along keys."""
    return plane_of(layout, "")


def plane_of(layout: PromptLayout, region: str) -> Plane:
    """Returns the plane of a region.

    Args:
        region: a modality, whose queries see all tokens (algorithm 2, Q-boundary); a pair such as
            `text:video`, queries and keys (algorithm 3, 2D-boundary); or nothing for all tokens.
    """
    if region not in layout.cache and layout.whole is not None:
        plane = plane_of(layout.whole, region).chunk(layout.start, len(layout))
        layout.cache[region] = plane
    if region not in layout.cache:
        query, _, key = region.partition(":")
        queries, keys = layout.where(query or None), layout.where(key or None)
        frontier = torch.searchsorted(keys, queries, right=True) - 1
        layout.cache[region] = Plane(queries, keys, frontier, *_frames(layout.frames[keys]))
    return layout.cache[region]


def _frames(frames: Tensor) -> tuple[int, tuple[int, ...]]:
    """`period` and `sizes` of a plane's keys, given their frame numbers in order."""
    before = torch.cat([frames.new_full((1,), -1), frames[:-1]])
    # A frame that is broken by text, such as a timestamp inside it, starts once.
    is_start = (frames >= 0) & (frames > before.cummax(0).values)
    starts = is_start.nonzero()[:, 0]  # [frames]
    # Two videos in a row leave out a number: the way from one to the other is no period.
    follows = frames[starts].diff() == 1
    steps = starts.diff()
    if not bool(follows.any()):
        return 0, ()
    sizes = frames[frames >= 0].unique(return_counts=True)[1]
    return _commonest(steps[follows])[0], _commonest(sizes)


def _commonest(lengths: Tensor) -> tuple[int, ...]:
    """Returns each length once, the one that covers most first."""
    values, count = lengths.unique(return_counts=True)
    return tuple(values[(values * count).argsort(descending=True, stable=True)].tolist())
