"""Errors of the attention output: of every candidate in every region, and of finished patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from ..attention import States
from ..attention.run import HeadGroup, jobs
from ..modality import PromptLayout
from ..pairs import Index
from ..patterns import Grid, HeadPattern, Pattern, QBoundary, TwoDBoundary
from ..patterns.base import build
from ..patterns.grid import AUTO
from ..plane import Plane, whole
from ..probe import LAST, probe
from .dense_attention import Contribution, DenseAttention, SampledPlane, SampledQueries

WHOLE = "whole"


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over all tokens of a sample, estimated from the asked ones; fp64.

    Attributes: `[candidates, heads]` in a survey, `[heads]` in a trial.
        error: squared error of the attention output.
        recall: share of a token's dense attention that is kept; 1 for each token is all.
        pairs: query-key pairs that are computed.
    """

    error: Tensor
    recall: Tensor
    pairs: Tensor

    @classmethod
    def empty(cls, *shape: int) -> Tally:
        return cls(*(torch.zeros(shape, dtype=torch.double) for _ in fields(cls)))

    def note(self, where: tuple[Any, ...], figures: Tensor) -> None:
        """Write error, recall and pairs, `[3, heads]`, in one place."""
        for sums, value in zip(vars(self).values(), figures, strict=True):
            sums[where] = value

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.error + other.error, self.recall + other.recall, self.pairs + other.pairs)


@dataclass(frozen=True, eq=False)
class Survey:
    """What patterns do in each region of a sample, or of several, while the rest stays dense.

    Finished patterns of heads have the one region `WHOLE`, of which the properties tell.

    Attributes:
        regions: by name: `WHOLE`, `"video"`, `"text:video"`, ...
        norm: squared length of the dense output, `[heads]`.
        tokens: how many there are.
        pairs: that dense attention computes.
    """

    regions: dict[str, Tally]
    norm: Tensor
    tokens: float
    pairs: float

    def __add__(self, other: Survey) -> Survey:
        regions = dict(self.regions)
        for name, tally in other.regions.items():
            regions[name] = regions[name] + tally if name in regions else tally
        total = self.tokens + other.tokens, self.pairs + other.pairs
        return Survey(regions, self.norm + other.norm, *total)

    @property
    def error(self) -> Tensor:
        """Returns the relative error `|sparse - dense| / |dense|`, `[heads]`."""
        return (self.regions[WHOLE].error / self.norm.clamp(min=1e-30)).sqrt()

    @property
    def recall(self) -> Tensor:
        return self.regions[WHOLE].recall / self.tokens

    @property
    def cost(self) -> Tensor:
        """Returns the share of dense attention's pairs."""
        return self.regions[WHOLE].pairs / self.pairs


SMALL = 1e-3
"""Regions with a smaller share of the pairs than this are not worth a pattern, and stay dense."""


def planes(layout: PromptLayout) -> dict[str, Plane]:
    """Returns the regions in which candidates are tried; a single modality has the whole only."""
    result = {WHOLE: whole(layout)}
    if len(layout.present) > 1:
        for kind in (QBoundary, TwoDBoundary):
            result |= {name: kind().plane(layout, name) for name in kind().regions(layout.present)}
    minimum = SMALL * result[WHOLE].pairs
    return {name: plane for name, plane in result.items() if plane.pairs > minimum}


def survey(
    states: States, layout: PromptLayout, candidates: Sequence[Pattern], queries: int
) -> Survey:
    """Try every candidate in every region, for all heads (algorithm 4, the first two loops).

    In a region of pairs of modalities, the error is that of the whole output when every other
    region stays dense: what a modality sees of another counts as much as it weighs.
    """
    reading = SampledQueries.of(states, layout, queries)
    heads = states.queries.shape[0]
    places = {name: reading.place(plane) for name, plane in planes(layout).items()}
    tallies = {name: Tally.empty(len(candidates), heads) for name in places}
    indices = {n: _indices(states, window.plane, candidates) for n, window in places.items()}
    norm = torch.zeros(heads, dtype=torch.double)
    for picked in reading.chunks():
        dense = reading.attention(picked)
        norm[picked.cpu()] = _norm(dense, reading)
        for name, window in places.items():
            inside, output = dense.inside(window), dense.output[:, window.rows]
            weight = reading.weight[window.rows]
            rest = Contribution.rest(inside, output, is_all=":" not in name)
            known: dict[bytes, Tensor] = {}  # candidates that come to the same lines here
            for place, index in enumerate(indices[name]):
                chosen = None if index is None else index.take(picked)
                mark = _signature(chosen)
                if mark not in known:
                    part = Contribution.of(inside, window.seen(chosen)).joined(rest)
                    known[mark] = _figures(part, output, weight)
                tallies[name].note((place, picked.cpu()), known[mark])
    return Survey(tallies, norm, float(reading.weight.sum()), float(reading.plane.pairs))


def trial(
    states: States,
    layout: PromptLayout,
    patterns: Sequence[HeadPattern],
    queries: int,
    turn: float = 0.0,
) -> Survey:
    """Measure one finished pattern of each head on sampled queries.

    Args:
        turn: asks others than `survey` did, which has picked what suits its own; see `spread`.
    """
    reading = SampledQueries.of(states, layout, queries, turn)
    heads = states.queries.shape[0]
    work = list(jobs(states, layout, patterns))
    tally, norm = Tally.empty(heads), torch.zeros(heads, dtype=torch.double)
    for picked in reading.chunks():
        dense = reading.attention(picked)
        norm[picked.cpu()] = _norm(dense, reading)
        none = dense.output.new_zeros(dense.output.shape[:2])
        total = Contribution(torch.zeros_like(dense.output), none, none.clone())
        for job in work:
            _add(total, dense, picked, job, reading.place(job.plane))
        tally.note((picked.cpu(),), _figures(total, dense.output, reading.weight))
    return Survey({WHOLE: tally}, norm, float(reading.weight.sum()), float(reading.plane.pairs))


def _add(
    total: Contribution, dense: DenseAttention, picked: Tensor, job: HeadGroup, window: SampledPlane
) -> None:
    """Add what a job contributes to those of its heads that are picked, in place."""
    mine = torch.isin(job.heads, picked).nonzero()[:, 0]
    if not len(mine) or not len(window.rows):
        return
    places = torch.searchsorted(picked, job.heads[mine])  # their places among the picked
    index = None if job.index is None else job.index.take(mine)
    some = DenseAttention(dense.weights[places], dense.values[places]).inside(window)
    part = Contribution.of(some, window.seen(index))
    for sums, piece in zip(vars(total).values(), vars(part).values(), strict=True):
        sums[places[:, None], window.rows] += piece


def _norm(dense: DenseAttention, reading: SampledQueries) -> Tensor:
    """Returns squared length of the dense output, `[heads]` fp64."""
    return (dense.output.square().sum(2).double() @ reading.weight).cpu()


def _indices(states: States, plane: Plane, candidates: Sequence[Pattern]) -> list[Index | None]:
    """Returns every candidate's index of all heads, from one look at the last queries."""
    heads = range(states.queries.shape[0])
    seen = probe(states.queries, states.keys, plane, states.scale, last=LAST)
    strides: dict[tuple[int, tuple[bool, bool], int], int] = {}

    def drawn(pattern: Pattern, head: int) -> Pattern:
        """Returns the pattern with its stride, which is looked for once for all grids of a sort."""
        if not isinstance(pattern, Grid) or pattern.stride != AUTO:
            return pattern
        sort = (pattern.max_stride, pattern.looks_along, head)
        if sort not in strides:
            strides[sort] = pattern.find_stride(plane, seen, head)
        return replace(pattern, stride=strides[sort])

    return [
        None if pattern.kind == "dense" else build([drawn(pattern, h) for h in heads], plane, seen)
        for pattern in candidates
    ]


def _signature(index: Index | None) -> bytes:
    """Returns bytes that are equal for two indices of a plane by which the heads see the same."""
    if index is None:
        return b"dense"
    columns = [value for value in vars(index).values() if isinstance(value, Tensor)]
    return b" ".join([type(index).__name__.encode(), *(c.cpu().numpy().tobytes() for c in columns)])


def _figures(part: Contribution, output: Tensor, weight: Tensor) -> Tensor:
    """Returns error, recall and pairs, `[3, heads]` fp64, of asked queries; `output` is the dense
    one.
    """
    made = part.output / part.recall.clamp(min=1e-20)[..., None]
    error = (made - output).square().sum(2)
    stacked = torch.stack([error, part.recall.clamp(max=1.0), part.pairs])  # [3, heads, found]
    return (stacked.double() @ weight).cpu()
