"""Dense attention of some queries, against which every candidate is measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..attention import States
from ..modality import MODALITIES, PromptLayout
from ..pairs import Index, causal, spread
from ..plane import Plane, whole

SCORES = 1 << 24

"""Scores that are held at once, in fp32: heads are taken in pieces of this size."""


@dataclass(frozen=True, eq=False)
class SampledQueries:
    """Queries of one row that are asked, some of every modality, and what each stands for.

    Scoring all queries of a long prompt costs what dense attention costs, for each candidate. The
    error over a few hundred queries, spread over each modality, is an estimate of it that is as
    good for ranking, and every candidate is asked for the same ones.

    Attributes:
        states: of the row.
        plane: the whole prompt.
        slots: of the asked queries, `[asked]`, modality by modality.
        weight: tokens that each stands for, `[asked]`.
    """

    states: States
    plane: Plane
    slots: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls,
        states: States,
        layout: PromptLayout,
        queries: int,
        turn: float = 0.0,
    ) -> SampledQueries:
        """Ask `queries` tokens of every modality, all of those that have fewer; see `spread`."""
        slots, weight = [], []
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
        """Returns head numbers in pieces, `[picked]` each, whose scores fit into `SCORES`
        numbers.
        """
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
        """Returns where the asked queries are in a plane, and the plane's keys among all of
        them.
        """
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
        """Returns what asked queries see by an index, or densely: `[heads, found, plane's keys]`
        bool.
        """
        if index is None:
            return causal(self.plane, self.places)[2][None]
        return index.seen_by_all(self.plane, self.places)


@dataclass(frozen=True, eq=False)
class Contribution:
    """What a set of pairs contributes to asked queries' attention.

    Attributes:
        output: sum of values by dense weights, `[heads, found, head_dim]`.
        recall: sum of dense weights, `[heads, found]`.
        pairs: how many pairs it has, `[heads, found]`.
    """

    output: Tensor
    recall: Tensor
    pairs: Tensor

    @classmethod
    def rest(cls, inside: DenseAttention, output: Tensor, is_all: bool) -> Contribution:
        """Returns what lies outside of a plane when it stays dense; its pairs are not counted.

        Args:
            inside: dense attention in the plane.
            output: of all keys, `[heads, found, head_dim]`.
            is_all: the plane has all keys.
        """
        none = output.new_zeros(output.shape[:2])
        if is_all:
            return cls(torch.zeros_like(output), none, none)
        return cls(output - inside.output, 1 - inside.weights.sum(2), none)

    def joined(self, other: Contribution) -> Contribution:
        """Returns both together, for disjoint sets of pairs."""
        mine, extra = vars(self).values(), vars(other).values()
        return Contribution(*(value + more for value, more in zip(mine, extra, strict=True)))

    @classmethod
    def of(cls, dense: DenseAttention, seen: Tensor) -> Contribution:
        """Returns the pairs that are seen; `dense` is the attention inside the same plane."""
        mask = seen.float()  # counts below 2**24 are exact
        made = (dense.weights * mask) @ dense.summed
        pairs = mask.sum(2).expand(made.shape[:2])
        return cls(made[..., :-1], made[..., -1], pairs)
