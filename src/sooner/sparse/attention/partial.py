"""Attention in parts, merged without loss by log-sum-exp, and the reference that computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..index import Estimate, Fold, fold
from ..pairs import Index, causal
from ..plane import Plane
from ..probe import States, estimate_blocks
from .work import LayerWork, Layouts, Patterns, layer_work

Made = tuple[Tensor, Tensor, "Sequence[LayerWork | None]"]
"""What `Backend.layer` returns."""


@dataclass(frozen=True, eq=False)
class Partial:
    """Holds attention over the keys seen so far.

    Attributes:
        output: `[heads, tokens, head_dim]`, fp32, normalised over those keys.
        lse: their log-sum-exp, `[heads, tokens]`, fp32; minus infinity where there were none.
        final: where kernels write what nothing is added to, `[rows, heads, tokens, head_dim]`, in
            any dtype; `None` if all of it goes to `output`. `output` then has the buffers of
            `LayerPlan`, and `lse` all rows.
    """

    output: Tensor
    lse: Tensor
    final: Tensor | None = None

    @classmethod
    def empty(cls, states: States) -> Partial:
        """Returns an object that has seen nothing yet."""
        shape = states.queries.shape
        output = torch.zeros(shape, dtype=torch.float32, device=states.queries.device)
        return cls(output, output.new_full(shape[:2], -torch.inf))

    def add(self, heads: Tensor, slots: Tensor, output: Tensor, lse: Tensor) -> None:
        """Merge attention over *other* keys into some queries of some heads, in place.

        `softmax` over a union of disjoint sets is their outputs weighted by `exp(lse)`.

        Args:
            heads: head numbers, `[picked]`.
            slots: query slots, `[queries]`, or those of each head, `[picked, queries]`.
            output: `[picked, queries, head_dim]`.
            lse: `[picked, queries]`; where it is minus infinity, `output` does not count.
        """
        heads, slots = heads[:, None], slots.view(-1, slots.shape[-1])
        before = self.lse[heads, slots]
        if bool((before == -torch.inf).all()):
            if not bool((lse > -torch.inf).all()):
                output = torch.where((lse > -torch.inf)[..., None], output.float(), 0)
            self.output[heads, slots] = output.float()
            self.lse[heads, slots] = lse.float()
            return
        after = torch.logaddexp(before, lse.float())
        old, new = (
            torch.where(part == -torch.inf, 0.0, (part - after).exp())[..., None]
            for part in (before, lse.float())
        )
        fresh = torch.where(new > 0, output.float(), 0.0)  # an empty set may have NaN outputs
        self.output[heads, slots] = self.output[heads, slots] * old + fresh * new
        self.lse[heads, slots] = after


class Backend:
    """Attends over the pairs that an index names, and merges the result into `into`.

    `heads` are numbers among the row's query heads, `[picked]`; an index describes the picked heads
    in that order, and `None` stands for all causal pairs. Planes handed to one `Partial` for one
    head never share a pair.
    """

    name: str
    fold: Fold = staticmethod(fold)
    estimate: Estimate = staticmethod(estimate_blocks)

    def attend(
        self, states: States, plane: Plane, index: Index | None, heads: Tensor, into: Partial
    ) -> None:
        """Attends to the plane's pairs."""
        raise NotImplementedError

    def layer(self, states: States, layouts: Layouts, patterns: Patterns) -> Made:
        """Returns causal attention of some rows, each head by its pattern; padding gets zeros.

        Args:
            states: rotated queries, keys and values, `[rows, heads, tokens, head_dim]`.
            layouts: what the tokens of each row are.
            patterns: of each row's query heads.

        Returns:
            `[rows, heads, tokens, head_dim]` in the dtype of the queries, tokens before heads in
            memory; log-sum-exps of pairs, `[rows, heads, tokens]` fp32; and the work of each row,
            nothing without tokens, or of all rows in one.
        """
        rows, heads, tokens, dim = states.queries.shape
        output = states.queries.new_zeros(rows, tokens, heads, dim).transpose(1, 2)
        lse = output.new_full((rows, heads, tokens), -torch.inf, dtype=torch.float32)
        works: list[LayerWork | None] = [None] * rows
        every = zip(states.queries, states.keys, states.values, strict=True)
        for row, (parts, layout, each) in enumerate(zip(every, layouts, patterns, strict=True)):
            if not len(layout.where()):
                continue
            one = States(*parts, states.scale)
            into = Partial(Partial.empty(one).output, lse[row])
            works[row] = work = layer_work(one, [layout], [each], self.fold, self.estimate)
            for group in work.groups:
                self.attend(one, group.plane, group.index, group.heads, into)
            output[row] = into.output
        return output, lse, works


ROWS = 1024  # queries at a time, so that memory grows with the keys only


class Reference(Backend):
    """Computes sparse attention by its definition, all scores and a mask: slow, and right."""

    name = "reference"

    def attend(
        self, states: States, plane: Plane, index: Index | None, heads: Tensor, into: Partial
    ) -> None:
        """Attends to the plane's pairs."""
        for place, head in enumerate(heads.tolist()):
            keys = states.keys[head // states.group, plane.keys].float()
            values = states.values[head // states.group, plane.keys].float()
            for start in range(0, len(plane.queries), ROWS):
                part = slice(start, start + ROWS)
                slots = plane.queries[part]
                scores = states.queries[head, slots].float() @ keys.T * states.scale
                seen = causal(plane, part)[2] if index is None else index.seen(place, plane, part)
                scores = scores.masked_fill(~seen, -torch.inf)
                lse = scores.logsumexp(1)  # [queries]
                weights = (scores - lse[:, None]).exp().nan_to_num(0.0)
                into.add(heads[place : place + 1], slots, (weights @ values)[None], lse[None])
