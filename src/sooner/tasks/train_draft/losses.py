"""What a head is taught: losses, unrolled steps, and how sure it may be (calibration)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, smooth_l1_loss

from ...methods.eagle import Eagle3Head, MtpHead
from ...methods.eagle.base import DraftHead
from .dataset import PaddedBatch
from .settings import HeadTraining


@dataclass(frozen=True)
class Estimate:
    """What a head has made of one step of the unrolling.

    Attributes:
        states: estimates of `PaddedBatch.targets`, `[rows, span, hidden]`.
        valid: those that have enough of the span before them, `[rows, span]` bool.
    """

    states: Tensor
    valid: Tensor


def unroll(
    head: DraftHead, batch: PaddedBatch, steps: int, noise: Tensor | None = None
) -> Iterator[Estimate]:
    """Yields estimates of every place of the span: after the target's states, after one of its own,
    ...

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
    fused = head.fuse(batch.embeds, head.read(states))  # [rows, entries, width]
    line = torch.arange(fused.shape[1], device=fused.device)
    keys, values = head.keys_values(fused, head.rotation(line[None]))
    rotation = head.rotation(batch.places)
    embeds = _at(batch.embeds, batch.places)
    past = _Past(head, keys, values, batch.places)
    valid, step_fused = batch.valid, _at(fused, batch.places)
    estimate = batch.targets
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

    def __init__(self, head: DraftHead, keys: Tensor, values: Tensor, places: Tensor) -> None:
        self.head, self.places = head, places
        self.groups = head.heads // head.kv_heads
        self.keys, self.values = keys, values
        self.steps: list[tuple[Tensor, Tensor]] = []  # of each later step, [rows, heads, span, dim]

    def add(self, keys: Tensor, values: Tensor) -> None:
        """The entries of a further step."""
        repeated = (part.repeat_interleave(self.groups, 1) for part in (keys, values))
        self.steps.append(tuple(repeated))  # type: ignore[arg-type]

    def attend(self, queries: Tensor) -> Tensor:
        """Returns attention of `queries [rows, heads, span, dim]`, as long."""
        slots = torch.arange(self.keys.shape[2], device=queries.device)
        last = (self.places - len(self.steps))[..., None]  # the newest real entry of each
        hidden = slots > last  # [rows, span, entries]
        if not self.steps:
            mask = torch.zeros(hidden.shape, dtype=queries.dtype, device=queries.device)
            mask = mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)[:, None]
            return self.head.attend(queries, self.keys, self.values, mask)
        keys, values = (part.repeat_interleave(self.groups, 1) for part in (self.keys, self.values))
        lowest = torch.finfo(queries.dtype).min
        scores = (queries @ keys.transpose(2, 3)).masked_fill(hidden[:, None], lowest)
        later = [
            (_later_entries(key, age), _later_entries(value, age))
            for age, (key, value) in zip(
                range(len(self.steps) - 1, -1, -1), self.steps, strict=True
            )
        ]
        further = [(queries * key).sum(-1, keepdim=True) for key, _ in later]
        weights = torch.cat([scores, *further], -1) * queries.shape[-1] ** -0.5
        weights = weights.softmax(-1)  # [rows, heads, span, entries + own]
        seen = weights[..., : keys.shape[2]] @ values
        for number, (_, value) in enumerate(later, start=keys.shape[2]):
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


TOP = 8

"""Continuations of a node in the default tree."""


class HeadLoss(nn.Module):
    """The loss that EAGLE uses (Li et al. 2024, section 3.2): `v_w` smooth L1 between the estimate
    and the target's state, and `p_w` cross-entropy between the distributions that the target's LM
    head makes of both; means over the places of the span, and over the steps of the unrolling.

    Args:
        head: what is trained.
        adapter: the target's adapter, frozen.
        settings: weights of both parts, steps of the unrolling.
    """

    def __init__(self, head: DraftHead, adapter: Any, settings: HeadTraining) -> None:
        super().__init__()
        self.head = head
        self.settings = settings
        self._adapter = (adapter,)  # in a tuple, so that its model is no part of this module

    def forward(self, batch: PaddedBatch, noise: Tensor | None = None) -> dict[str, Tensor]:
        """Returns `loss`, and its parts `states` and `tokens`, each a scalar."""
        settings, adapter = self.settings, self._adapter[0]
        with torch.no_grad():
            targets = adapter.logits(batch.targets.to(adapter.dtype)).float().softmax(-1)
        far = torch.zeros((), device=batch.targets.device)
        unlike = torch.zeros_like(far)
        for estimate in unroll(self.head, batch, settings.unroll, noise):
            share = estimate.valid / (estimate.valid.sum().clamp(min=1) * settings.unroll)
            distance = smooth_l1_loss(
                estimate.states.float(), batch.targets, reduction="none"
            ).mean(-1)  # [rows, span]
            logits = adapter.logits(estimate.states.to(adapter.dtype)).float()
            entropy = -(targets * logits.log_softmax(-1)).sum(-1)
            far = far + (share * distance).sum()
            unlike = unlike + (share * entropy).sum()
        loss = settings.state_weight * far + settings.token_weight * unlike
        return {"loss": loss, "states": far.detach(), "tokens": unlike.detach()}


class TokenLoss(nn.Module):
    """The loss that EAGLE-3 uses (Li et al. 2025, section 3.1): cross-entropy with the target's
    tokens, over the steps of its training-time test, in which a head goes on from its own states.
    An MTP layer that drafts several tokens is taught by the same.

    What the target gives to tokens outside a reduced vocabulary is left out.

    Args:
        head: what is trained.
        adapter: the target's adapter, frozen.
        settings: steps of the unrolling, and how their weights fall.
    """

    def __init__(self, head: Eagle3Head | MtpHead, adapter: Any, settings: HeadTraining) -> None:
        super().__init__()
        self.head, self.settings = head, settings
        self._adapter = (adapter,)  # in a tuple, so that its model is no part of this module

    def forward(self, batch: PaddedBatch, noise: Tensor | None = None) -> dict[str, Tensor]:
        """Returns `loss`, and the first and the last step's part `tokens` and `deep`, each a
        scalar."""
        settings, adapter = self.settings, self._adapter[0]
        with torch.no_grad():
            hidden = int(adapter.text_config.hidden_size)
            last = batch.targets[..., :hidden].to(adapter.dtype)
            targets = adapter.logits(last).float().softmax(-1)
            if isinstance(self.head, Eagle3Head):
                targets = targets[..., self.head.token_ids]
        parts = []
        for estimate in unroll(self.head, batch, settings.unroll):
            share = estimate.valid / estimate.valid.sum().clamp(min=1)
            logits = self._logits(estimate.states).float()
            entropy = -(targets * logits.log_softmax(-1)).sum(-1)  # [rows, span]
            parts.append((share * entropy).sum())
        weights = [settings.step_decay**step for step in range(len(parts))]
        weighed = [weight * part for weight, part in zip(weights, parts, strict=True)]
        loss = torch.stack(weighed).sum() / sum(weights)
        return {"loss": loss, "tokens": parts[0].detach(), "deep": parts[-1].detach()}

    def _logits(self, states: Tensor) -> Tensor:
        """Returns the logits of the tokens that the head can draft."""
        if isinstance(self.head, Eagle3Head):
            return self.head.drafted_logits(states)
        return self.head.scores(states, self._adapter[0])


class DepthAcceptance:
    """Counts how deep drafts hold on held-out samples, wherever in an answer they begin.

    Args:
        depth: levels.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.tried = [0] * depth
        self.chain = [0] * depth
        self.tree = [0] * depth

    @torch.no_grad()
    def add(self, head: DraftHead, adapter: Any, batch: PaddedBatch) -> None:
        """Count one batch."""
        chain = tree = batch.valid
        for level, estimate in enumerate(unroll(head, batch, self.depth)):
            if level:  # what the draft below was worth, one place on
                chain, tree = _on(chain), _on(tree)
            best = self._best(head, adapter, estimate)
            hits = best == batch.following[..., None]  # [rows, span, TOP]
            chain = chain & hits[..., 0] & estimate.valid
            tree = tree & hits.any(-1) & estimate.valid
            self.tried[level] += int(estimate.valid.sum())
            self.chain[level] += int(chain.sum())
            self.tree[level] += int(tree.sum())

    def _best(self, head: DraftHead, adapter: Any, estimate: Estimate) -> Tensor:
        logits = head.scores(estimate.states, adapter)
        return logits.topk(min(TOP, logits.shape[-1])).indices

    def as_dict(self) -> dict[str, list[float]]:
        """Share of drafts whose first `d` tokens are all accepted, for each depth `d`.

        `chain` is of greedy chains; `tree` counts a level as held if the token is among the `TOP`
        best, which no tree can exceed.
        """
        return {"chain": self._shares(self.chain), "tree": self._shares(self.tree)}

    def _shares(self, counts: list[int]) -> list[float]:
        pairs = zip(counts, self.tried, strict=True)
        return [round(count / tried, 4) if tried else 0.0 for count, tried in pairs]


def _on(tensor: Tensor) -> Tensor:
    """`[rows, span]` one place on."""
    return torch.cat([torch.zeros_like(tensor[:, :1]), tensor[:, :-1]], 1)


TEMPERATURES = [0.05 * 1.15**power for power in range(27)]

"""From 0.05 to 1.9; what is chosen is the least surprising one of them."""


@torch.no_grad()
def fit_temperature(
    head: DraftHead, adapter: Any, batches: Iterable[PaddedBatch], depth: int
) -> float:
    """Returns the temperature under which the target's greedy tokens are the least surprising.

    Args:
        head: in eval mode.
        adapter: the target's adapter.
        batches: held-out samples.
        depth: levels of a draft that count.
    """
    surprise = torch.zeros(len(TEMPERATURES), dtype=torch.float64)
    for batch in batches:
        for estimate in unroll(head, batch, depth):
            scores = head.scores(estimate.states, adapter).float()[estimate.valid]
            tokens = batch.following[estimate.valid][:, None]  # [places, 1]
            for number, temperature in enumerate(TEMPERATURES):
                chance = (scores / temperature).log_softmax(-1).gather(1, tokens)
                # Tokens outside a reduced vocabulary surprise at any temperature.
                surprise[number] -= float(chance[chance.isfinite()].sum())
    return round(TEMPERATURES[int(surprise.argmin())], 4)
