"""Sparse attention of one row: group heads by plane and kind, estimate once, execute, merge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..index import Index
from ..modality import Layout
from ..patterns import Boundary, HeadPattern, Pattern
from ..patterns.base import build
from ..plane import Plane, whole
from ..probe import LAST, Probe, probe
from .backend import Backend
from .partial import Partial, States


@dataclass(frozen=True, eq=False)
class Job:
    """Heads that share a plane and a kind.

    Attributes:
        heads: their numbers, `[picked]`.
        index: what they see; `None` for dense ones.
        estimate: the probe behind dynamic patterns, in the order of `heads`.
    """

    plane: Plane
    heads: Tensor
    index: Index | None
    estimate: Probe | None

    @property
    def pairs(self) -> Tensor:
        """Query-key pairs that each of the heads computes, counted exactly, `[picked]` int64."""
        if self.index is None:
            return torch.full_like(self.heads, self.plane.pairs)
        return self.index.pairs(self.plane)


def sparse_attention(
    states: States, layout: Layout, patterns: Sequence[HeadPattern], backend: Backend
) -> Partial:
    """Causal attention of one row, each head by its pattern.

    Args:
        states: rotated queries, keys and values of the row.
        layout: what its tokens are; padding gets zeros.
        patterns: one for each query head.
        backend: what runs them.
    """
    into = Partial.empty(states)
    for job in jobs(states, layout, patterns):
        run(job, states, backend, into)
    return into


def jobs(states: States, layout: Layout, patterns: Sequence[HeadPattern]) -> Iterator[Job]:
    """What there is to execute, in no particular order; planes are made and probed once."""
    regions: dict[tuple[str, str], list[tuple[int, Pattern]]] = defaultdict(list)
    owners: dict[tuple[str, str], Boundary] = {}
    for head, pattern in enumerate(patterns):
        if isinstance(pattern, Boundary):
            for region, inner in pattern.parts(layout):
                regions[pattern.name, region].append((head, inner))
                owners[pattern.name, region] = pattern
        else:
            regions["", ""].append((head, pattern))
    for place, members in regions.items():
        owner = owners.get(place)
        plane = whole(layout) if owner is None else owner.plane(layout, place[1])
        yield from _kinds(states, plane, members)


def _kinds(states: States, plane: Plane, members: list[tuple[int, Pattern]]) -> Iterator[Job]:
    """One job for each kind of pattern, and for each size of probe."""
    groups: dict[tuple[str, bool, int], list[tuple[int, Pattern]]] = defaultdict(list)
    for head, pattern in members:
        last = getattr(pattern, "last_q", LAST)
        groups[pattern.kind, pattern.dynamic, last].append((head, pattern))
    for (kind, dynamic, last), group in groups.items():
        heads = torch.tensor([head for head, _ in group], device=plane.keys.device)
        estimate = None
        if dynamic:
            estimate = probe(states.queries, states.keys, plane, states.scale, heads, last)
        chosen = [pattern for _, pattern in group]
        index = None if kind == "dense" else build(chosen, plane, estimate)
        yield Job(plane, heads, index, estimate)


def run(job: Job, states: States, backend: Backend, into: Partial) -> None:
    """Execute one job and merge it into `into`."""
    if job.index is None:
        backend.dense(states, job.plane, job.heads, into)
    else:
        job.index.run(backend, states, job.plane, job.heads, into)
