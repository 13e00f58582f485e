"""Errors of the attention output: of every candidate in every region, and of finished patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..attention import States
from ..attention.run import HeadGroup, jobs
from ..index import build
from ..modality import MODALITIES, PromptLayout
from ..pairs import GridIndex, Index, causal, spread
from ..patterns import AUTO, Grid, HeadPattern, Pattern, QBoundary, TwoDBoundary
from ..plane import Plane, plane_of, whole
from ..probe import LAST, probe

WORST = 10
"""One in so many of the last queries is among their worst."""

SCORES = 1 << 24
"""Scores that are held at once, in fp32: heads are taken in pieces of this size."""


@dataclass(frozen=True, eq=False)
class SampledQueries:
    """Queries of one row that are asked, some of every modality, and its last ones.

    Scoring all queries of a long prompt costs what dense attention costs, for each candidate. The
    error over a few hundred queries, spread over each modality, is an estimate of it that is as
    good for ranking, and every candidate is asked for the same ones.

    Attributes:
        states: of the row.
        plane: the whole prompt.
        slots: of the asked queries, `[asked]`, the last ones first, then modality by modality.
        weight: tokens that each stands for, `[asked]` fp64; 0 for the last ones, see `_figures`.
    """

    states: States
    plane: Plane
    slots: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, states: States, layout: PromptLayout, queries: int, turn: float = 0.0, last: int = 0
    ) -> SampledQueries:
        """Ask `queries` tokens of every modality, all of those that have fewer (see `spread`), and
        the `last` ones of the prompt."""
        real = layout.where()
        slots = [real[max(len(real) - last, 0) :]]
        weight = [torch.zeros_like(slots[0], dtype=torch.double)]
        for name in MODALITIES:
            members = layout.where(name)
            if len(members):
                chosen = members[spread(len(members), queries, members.device, turn)]
                slots.append(chosen)
                weight.append(
                    torch.full_like(chosen, len(members), dtype=torch.double) / len(chosen)
                )
        return cls(states, whole(layout), torch.cat(slots), torch.cat(weight))

    def chunks(self) -> list[Tensor]:
        """Returns head numbers in pieces, `[picked]` each, of at most `SCORES` scores."""
        heads = torch.arange(self.states.queries.shape[0], device=self.slots.device)
        size = max(SCORES // max(len(self.slots) * len(self.plane.keys), 1), 1)
        return list(heads.split(size))

    def attention(self, heads: Tensor) -> DenseAttention:
        """Returns dense attention of some heads' asked queries, fp32."""
        group = heads // self.states.group
        keys = self.states.keys[group][:, self.plane.keys].float()
        values = self.states.values[group][:, self.plane.keys].float()
        selected = self.states.queries[heads][:, self.slots].float()
        scores = selected @ keys.mT * self.states.scale
        frontier = torch.searchsorted(self.plane.keys, self.slots, right=True) - 1
        rank = torch.arange(keys.shape[1], device=keys.device)
        weights = scores.masked_fill_(rank > frontier[:, None], -torch.inf).softmax(2)
        return DenseAttention(weights, values)

    def place(self, plane: Plane) -> SampledPlane:
        """Returns where the asked queries are in a plane, and its keys among all of them."""
        last = max(len(plane.queries) - 1, 0)
        places = torch.searchsorted(plane.queries, self.slots).clamp(max=last)
        rows = (plane.queries[places] == self.slots).nonzero()[:, 0]
        columns = torch.searchsorted(self.plane.keys, plane.keys)
        return SampledPlane(plane, rows, places[rows], columns)


@dataclass(frozen=True, eq=False)
class DenseAttention:
    """The dense attention that some heads have.

    Attributes:
        weights: after the softmax, `[heads, asked, keys]`.
        values: `[heads, keys, head_dim]`.
    """

    weights: Tensor
    values: Tensor

    @cached_property
    def output(self) -> Tensor:
        """Returns `[heads, asked, head_dim]`."""
        return self.weights @ self.values

    @cached_property
    def summed(self) -> Tensor:
        """Values with a column of ones, whose product with weights is their sum."""
        return torch.nn.functional.pad(self.values, (0, 1), value=1.0)

    def inside(self, window: SampledPlane) -> DenseAttention:
        """Returns the part in a plane; its weights do not add up to one."""
        weights = self.weights
        if len(window.rows) < weights.shape[1]:
            weights = weights[:, window.rows]
        if len(window.columns) == self.values.shape[1]:
            return DenseAttention(weights, self.values)
        return DenseAttention(weights[..., window.columns], self.values[:, window.columns])


@dataclass(frozen=True, eq=False)
class SampledPlane:
    """A plane as `SampledQueries` sees it.

    Attributes:
        rows: which of the asked queries lie in it, `[found]`.
        places: their places among the plane's queries, `[found]`.
        columns: the plane's keys among all keys, `[plane's keys]`.
    """

    plane: Plane
    rows: Tensor
    places: Tensor
    columns: Tensor

    def seen(self, index: Index | None) -> Tensor:
        """Returns what asked queries see, densely without an index: `[heads, found, keys]` bool."""
        if index is None:
            return causal(self.plane, self.places)[2][None]
        return index.seen_by_all(self.plane, self.places)


def contribution(dense: DenseAttention, seen: Tensor) -> Tensor:
    """Returns what the pairs that are seen contribute to asked queries' attention.

    Contributions of disjoint sets of pairs add up.

    Args:
        dense: attention inside the plane.
        seen: `[heads or 1, found, plane's keys]` bool.

    Returns:
        `[heads, found, head_dim + 2]`: the sum of values by dense weights, that of the weights
        (recall), and the number of pairs.
    """
    mask = seen.float()  # counts below 2**24 are exact
    made = (dense.weights * mask) @ dense.summed
    return torch.cat([made, mask.sum(2).expand(made.shape[:2])[..., None]], 2)


WHOLE = "whole"


@dataclass(frozen=True, eq=False)
class Survey:
    """What patterns do in each region of a sample, or of several, while the rest stays dense.

    Finished patterns of heads have the one region `WHOLE`, of which the properties tell.

    Attributes:
        regions: by name (`WHOLE`, `"video"`, `"text:video"`, ...) the squared error of the
            attention output, the share of dense attention that is kept, and the query-key pairs
            that are computed: sums over all tokens, estimated from the asked ones; and the squared
            relative error of the worst of the last queries. `[4, candidates, heads]` fp64 in a
            survey, `[4, heads]` in a trial.
        norm: squared length of the dense output, `[heads]`.
        tokens: how many there are.
        pairs: that dense attention computes.
    """

    regions: dict[str, Tensor]
    norm: Tensor
    tokens: float
    pairs: float

    def __add__(self, other: Survey) -> Survey:
        regions = dict(self.regions)
        for name, sums in other.regions.items():
            if name in regions:
                worst = torch.maximum(regions[name][3:], sums[3:])
                sums = torch.cat([regions[name][:3] + sums[:3], worst])
            regions[name] = sums
        total = self.tokens + other.tokens, self.pairs + other.pairs
        return Survey(regions, self.norm + other.norm, *total)

    def error(self, region: str) -> Tensor:
        """Returns squared relative errors: of all tokens, or of the worst of the last queries if
        that is greater, `[candidates, heads]`."""
        sums = self.regions[region]
        return torch.maximum(sums[0] / self.norm.clamp(min=1e-30), sums[3])

    @property
    def figures(self) -> Tensor:
        """Returns error `|sparse - dense| / |dense|`, recall and share of pairs, `[3, heads]`."""
        _, recall, pairs, _ = self.regions[WHOLE]
        return torch.stack([self.error(WHOLE).sqrt(), recall / self.tokens, pairs / self.pairs])


SMALL = 1e-3
"""Regions with a smaller share of the pairs than this are not worth a pattern, and stay dense."""


def planes(layout: PromptLayout) -> dict[str, Plane]:
    """Returns the regions in which candidates are tried; a single modality has the whole only."""
    result = {WHOLE: whole(layout)}
    if len(layout.present) > 1:
        for kind in (QBoundary, TwoDBoundary):
            result |= {name: plane_of(layout, name) for name in kind().regions(layout.present)}
    minimum = SMALL * result[WHOLE].pairs
    return {name: plane for name, plane in result.items() if plane.pairs > minimum}


def survey(
    states: States, layout: PromptLayout, candidates: Sequence[Pattern], queries: int, last: int = 0
) -> Survey:
    """Try every candidate in every region, for all heads (algorithm 4, the first two loops).

    In a region of pairs of modalities, the error is that of the whole output when every other
    region stays dense: what a modality sees of another counts as much as it weighs.
    """
    reading = SampledQueries.of(states, layout, queries, last=last)
    heads = states.queries.shape[0]
    places = {name: reading.place(plane) for name, plane in planes(layout).items()}
    sums = {name: torch.zeros(4, len(candidates), heads, dtype=torch.double) for name in places}
    indices = {n: _indices(states, window.plane, candidates) for n, window in places.items()}
    norm = torch.zeros(heads, dtype=torch.double)
    for picked in reading.chunks():
        dense = reading.attention(picked)
        norm[picked.cpu()] = _norm(dense, reading)
        for name, window in places.items():
            inside, output = dense.inside(window), dense.output[:, window.rows]
            weight = reading.weight[window.rows]
            rest = output.new_zeros(())  # outside, which stays dense; its pairs are not counted
            if ":" in name:
                lost = torch.cat([output - inside.output, 1 - inside.weights.sum(2)[..., None]], 2)
                rest = torch.nn.functional.pad(lost, (0, 1))
            known: dict[bytes, Tensor] = {}  # candidates that come to the same lines here
            for place, index in enumerate(indices[name]):
                chosen = None if index is None else index.take(picked)
                mark = _signature(chosen)
                if mark not in known:
                    part = contribution(inside, window.seen(chosen)) + rest
                    known[mark] = _figures(part, output, weight)
                sums[name][:, place, picked.cpu()] = known[mark]
    return Survey(sums, norm, float(reading.weight.sum()), float(reading.plane.pairs))


def trial(
    states: States,
    layout: PromptLayout,
    patterns: Sequence[HeadPattern],
    queries: int,
    turn: float = 0.0,
    last: int = 0,
) -> Survey:
    """Measure one finished pattern of each head on sampled queries.

    Args:
        turn: asks others than `survey` did, which has picked what suits its own; see `spread`.
    """
    reading = SampledQueries.of(states, layout, queries, turn, last)
    heads = states.queries.shape[0]
    work = list(jobs(states, layout, patterns))
    sums = torch.zeros(4, heads, dtype=torch.double)
    norm = torch.zeros(heads, dtype=torch.double)
    for picked in reading.chunks():
        dense = reading.attention(picked)
        norm[picked.cpu()] = _norm(dense, reading)
        total = torch.nn.functional.pad(torch.zeros_like(dense.output), (0, 2))
        for job in work:
            _add(total, dense, picked, job, reading.place(job.plane))
        sums[:, picked.cpu()] = _figures(total, dense.output, reading.weight)
    return Survey({WHOLE: sums}, norm, float(reading.weight.sum()), float(reading.plane.pairs))


def _add(
    total: Tensor, dense: DenseAttention, picked: Tensor, job: HeadGroup, window: SampledPlane
) -> None:
    """Add what a job contributes to those of its heads that are picked, in place."""
    mine = torch.isin(job.heads, picked).nonzero()[:, 0]
    if not len(mine) or not len(window.rows):
        return
    places = torch.searchsorted(picked, job.heads[mine])  # their places among the picked
    index = None if job.index is None else job.index.take(mine)
    some = DenseAttention(dense.weights[places], dense.values[places]).inside(window)
    total[places[:, None], window.rows] += contribution(some, window.seen(index))


def _norm(dense: DenseAttention, reading: SampledQueries) -> Tensor:
    """Returns squared length of the dense output, `[heads]` fp64."""
    return (dense.output.square().sum(2).double() @ reading.weight).cpu()


def _indices(states: States, plane: Plane, candidates: Sequence[Pattern]) -> list[Index | None]:
    """Returns every candidate's index of all heads, from one look at the last queries."""
    heads = states.queries.shape[0]
    seen = probe(states.queries, states.keys, plane, states.scale, last=LAST)
    strides: dict[tuple[Any, ...], list[int]] = {}

    def drawn(pattern: Pattern) -> list[Pattern]:
        """Returns each head's with its stride, which is looked for once for all grids of a sort."""
        if not isinstance(pattern, Grid) or pattern.stride != AUTO:
            return [pattern] * heads
        sort = pattern.max_stride, pattern.slash, pattern.vline or not pattern.slash, pattern.rule
        if sort not in strides:
            index = build([pattern] * heads, plane, seen)
            assert isinstance(index, GridIndex)
            strides[sort] = index.stride.tolist()
        return [replace(pattern, stride=stride) for stride in strides[sort]]

    return [
        None if pattern.kind == "dense" else build(drawn(pattern), plane, seen, states)
        for pattern in candidates
    ]


def _signature(index: Index | None) -> bytes:
    """Returns bytes that are equal for two indices of a plane by which the heads see the same."""
    if index is None:
        return b"dense"
    columns = [value for value in vars(index).values() if isinstance(value, Tensor)]
    return b" ".join([type(index).__name__.encode(), *(c.cpu().numpy().tobytes() for c in columns)])


def _figures(part: Tensor, output: Tensor, weight: Tensor) -> Tensor:
    """Returns what a `Survey` sums of a region, `[4, heads]` fp64.

    Args:
        part: as of `contribution`, `[heads, found, head_dim + 2]`.
        output: that of dense attention.
        weight: of the queries, `[found]`. Those that weigh nothing are the last ones, of which the
            worst tenth counts: what looks far back for an answer does so in one or two of them.
    """
    made, recall, pairs = part[..., :-2], part[..., -2], part[..., -1]
    error = (made / recall.clamp(min=1e-20)[..., None] - output).square().sum(2)
    stacked = torch.stack([error, recall.clamp(max=1.0), pairs])  # [3, heads, found]
    relative = (error / output.square().sum(2).clamp(min=1e-20)).clamp(max=1.0)[:, weight == 0]
    worst = relative.topk(-(-relative.shape[1] // WORST)).values.double()  # [heads, picked]
    mean = worst.sum(1, keepdim=True).T / max(worst.shape[1], 1)
    return torch.cat([stacked.double() @ weight, mean]).cpu()
