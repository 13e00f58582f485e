"""A head on recorded samples as it runs when it drafts: from the target's states, then its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...methods.eagle import EagleHead
from .batches import Batch


@dataclass(frozen=True)
class Estimate:
    """What a head made of one step of the unrolling.

    Attributes:
        states: estimates of `Batch.wanted`, `[rows, span, hidden]`.
        valid: those that have enough of the span before them, `[rows, span]` bool.
    """

    states: Tensor
    valid: Tensor


def unroll(
    head: EagleHead, batch: Batch, steps: int, noise: Tensor | None = None
) -> Iterator[Estimate]:
    """Estimates of every place of the span: after the target's states, after one of its own, ...

    In step `s` an entry is fed the estimate of step `s - 1` for its state. It sees the `s - 1`
    entries before it as that draft fed them, and the target's states further back. So step `s` is
    level `s` of a drafted chain whose tokens were all accepted, for every place to begin at once.

    Args:
        head: the head.
        batch: samples.
        steps: at least one.
        noise: added to the target's states that are fed, `[rows, entries, hidden]`.

    Yields:
        An `Estimate` for each step.
    """
    states = batch.states if noise is None else batch.states + noise
    fused = head.fuse(batch.embeds, states)  # [rows, entries, hidden]
    line = torch.arange(fused.shape[1], device=fused.device)
    keys, values = head.keys_values(fused, head.rotation(line[None]))
    rotation = head.rotation(batch.places)
    embeds = _at(batch.embeds, batch.places)
    past = _Past(head, keys, values, batch.places)
    valid, step_fused = batch.valid, _at(fused, batch.places)
    estimate = batch.wanted
    for step in range(steps):
        if step:
            # The entry's state is the estimate of the entry before it.
            step_fused = head.fuse(embeds, _later(estimate, 1))
            past.add(*head.keys_values(step_fused, rotation))
            valid = valid & _later(batch.valid[..., None], step)[..., 0]
        queries = head.queries(step_fused, rotation)
        estimate = head.estimate(step_fused, past.attend(queries))
        yield Estimate(estimate, valid)


class _Past:
    """What the entries of a span may look at.

    Args:
        head: the head.
        keys, values: of the target's states, `[rows, kv_heads, entries, dim]`.
        places: of the span, `[rows, span]`.
    """

    def __init__(self, head: EagleHead, keys: Tensor, values: Tensor, places: Tensor) -> None:
        self.head, self.places = head, places
        self.groups = head.heads // head.kv_heads
        self.keys, self.values = keys, values
        self.own: list[tuple[Tensor, Tensor]] = []  # of each later step, [rows, heads, span, dim]

    def add(self, keys: Tensor, values: Tensor) -> None:
        """The entries of a further step."""
        repeated = (part.repeat_interleave(self.groups, 1) for part in (keys, values))
        self.own.append(tuple(repeated))  # type: ignore[arg-type]

    def attend(self, queries: Tensor) -> Tensor:
        """Attention of `queries [rows, heads, span, dim]`, as long."""
        slots = torch.arange(self.keys.shape[2], device=queries.device)
        last = (self.places - len(self.own))[..., None]  # the newest real entry of each
        hidden = slots > last  # [rows, span, entries]
        if not self.own:
            mask = torch.zeros(hidden.shape, dtype=queries.dtype, device=queries.device)
            mask = mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)[:, None]
            return self.head.attend(queries, self.keys, self.values, mask)
        keys, values = (part.repeat_interleave(self.groups, 1) for part in (self.keys, self.values))
        lowest = torch.finfo(queries.dtype).min
        scores = (queries @ keys.transpose(2, 3)).masked_fill(hidden[:, None], lowest)
        own = [
            (_later_entries(key, age), _later_entries(value, age))
            for age, (key, value) in zip(range(len(self.own) - 1, -1, -1), self.own, strict=True)
        ]
        further = [(queries * key).sum(-1, keepdim=True) for key, _ in own]
        weights = torch.cat([scores, *further], -1) * queries.shape[-1] ** -0.5
        weights = weights.softmax(-1)  # [rows, heads, span, entries + own]
        seen = weights[..., : keys.shape[2]] @ values
        for number, (_, value) in enumerate(own, start=keys.shape[2]):
            seen = seen + weights[..., number, None] * value
        return seen


def _at(states: Tensor, places: Tensor) -> Tensor:
    """`[rows, entries, hidden]` at `places [rows, span]`."""
    return states.gather(1, places[..., None].expand(-1, -1, states.shape[2]))


def _later(states: Tensor, by: int) -> Tensor:
    """`[rows, span, ...]` moved `by` places on, zeros in front."""
    return pad(states, (0, 0, by, 0))[:, : states.shape[1]]


def _later_entries(states: Tensor, by: int) -> Tensor:
    """`[rows, heads, span, dim]` moved `by` places on, zeros in front."""
    return pad(states, (0, 0, by, 0))[:, :, : states.shape[2]]
