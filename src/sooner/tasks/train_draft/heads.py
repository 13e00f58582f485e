"""What a head is taught: losses, unrolled steps, and how sure it may be (calibration)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention, smooth_l1_loss
from torch.nn.utils.rnn import pad_sequence

from ...methods.eagle.eagle3 import Eagle3Config, Eagle3Head
from ...methods.eagle.head import DraftHead, EagleHead
from ...methods.eagle.mtp import MtpHead
from .recording import TrainingSample
from .settings import HeadTraining

TEMPERATURES = [0.05 * 1.15**power for power in range(27)]
"""From 0.05 to 1.9; what is chosen is the least surprising one of them."""


@dataclass(frozen=True)
class PaddedBatch:
    """Samples side by side, padded on the right. Entry `i` is state `f_i` with the token behind it.

    Attributes:
        states: `f_i`, `[rows, entries, hidden]`.
        embeds: embedding of token `i + 1`, `[rows, entries, hidden]`.
        places: entries that are learnt or measured, `[rows, span]`.
        valid: which of those are real, `[rows, span]` bool.
        targets: `f_{i+1}` of each, `[rows, span, hidden]`.
        following: token `i + 2` of each, `[rows, span]`.
        positions: of all entries, `[rows, entries]` or `[axes, rows, entries]`.
    """

    states: Tensor
    embeds: Tensor
    places: Tensor
    valid: Tensor
    targets: Tensor
    following: Tensor
    positions: Tensor


def unroll(head: DraftHead, batch: PaddedBatch, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields estimates of every place of the span: after the target's states, after one of its own,
    ...

    In step `s` an entry is fed the estimate of step `s - 1` for its state. It sees the `s - 1`
    entries before it as that draft fed them, and the target's states further back. So step `s` is
    level `s` of a drafted chain whose tokens were all accepted, for every place to begin at once.

    Args:
        head: the head.
        batch: samples.
        steps: at least one.

    Yields:
        For each step estimates of `PaddedBatch.targets`, `[rows, span, hidden]`, and which of them
        have enough of the span before them, `[rows, span]` bool.
    """
    fused = head.fuse(batch.embeds, head.read(batch.states))  # [rows, entries, width]
    slots = torch.arange(fused.shape[1], device=fused.device)
    line = torch.arange(batch.places.shape[1], device=fused.device)  # of the span
    past = [head.keys_values(fused, head.rotation(batch.positions))]
    places = batch.places.expand(*batch.positions.shape[:-2], -1, -1)
    rotation = head.rotation(batch.positions.gather(-1, places))
    embeds = _at(batch.embeds, batch.places)
    valid, step_fused = batch.valid, _at(fused, batch.places)
    estimate = batch.targets
    for step in range(steps):
        if step:
            # The entry's state is the estimate of the entry before it.
            step_fused = head.fuse(embeds, _later(estimate, 1))
            past.append(head.keys_values(step_fused, rotation))
            valid = valid & _later(batch.valid[..., None], step)[..., 0]
        # The newest entry of the target's own, and one of each step that led here.
        visible = [slots <= (batch.places - step)[..., None]]  # [rows, span, entries]
        drafted = [line[:, None] - line == step - fed for fed in range(1, step + 1)]
        visible += [part.expand(len(valid), -1, -1) for part in drafted]  # [rows, span, span]
        hidden = ~torch.cat(visible, -1)[:, None]
        mask = torch.zeros(hidden.shape, dtype=step_fused.dtype, device=hidden.device)
        mask = mask.masked_fill_(hidden, torch.finfo(mask.dtype).min)
        keys, values = (torch.cat(parts, 2) for parts in zip(*past, strict=True))
        queries = head.queries(step_fused, rotation)
        grouped = keys.shape[1] != queries.shape[1]
        attended = scaled_dot_product_attention(queries, keys, values, mask, enable_gqa=grouped)
        estimate = head.estimate(step_fused, attended)
        yield estimate, valid


def _at(states: Tensor, places: Tensor) -> Tensor:
    """`[rows, entries, hidden]` at `places [rows, span]`."""
    return states.gather(1, places[..., None].expand(-1, -1, states.shape[2]))


def _later(states: Tensor, by: int) -> Tensor:
    """`[rows, span, ...]` moved `by` places on, zeros in front."""
    return pad(states, (0, 0, by, 0))[:, : states.shape[1]]


class HeadTask(nn.Module):
    """A head of EAGLE, EAGLE-3 or multi-token prediction that learns.

    Its loss is the cross-entropy with the target's tokens, averaged over the places of the span and
    the steps of the unrolling, each step weighing `step_decay` of the one before it.

    EAGLE-3 is taught so (Li et al. 2025, section 3.1), over the steps of its training-time test,
    and an MTP layer that drafts several tokens. What the target gives to tokens outside a reduced
    vocabulary is left out. EAGLE (Li et al. 2024, section 3.2) also learns the target's states:
    `v_w` smooth L1 between estimate and state, and `p_w` cross-entropy, all steps alike.

    Args:
        head: what is trained.
        adapter: the target's adapter, frozen.
        settings: the recipe.

    Attributes:
        measured: most held-out samples that a measurement looks at.
        temperature: fitted at the end of the training.
    """

    measured = 256

    def __init__(self, head: DraftHead, adapter: Any, settings: HeadTraining) -> None:
        super().__init__()
        self.head, self.settings, self.temperature = head, settings, 1.0
        self._adapter = (adapter,)  # in a tuple, so that its model is no part of this module

    @staticmethod
    def first_head(
        adapter: Any, settings: HeadTraining, samples: Iterable[TrainingSample]
    ) -> DraftHead:
        """Returns a head with random weights."""
        if settings.format == "eagle":
            return EagleHead.for_target(adapter)
        if settings.format == "mtp":
            return MtpHead.like(adapter)
        vocab = adapter.vocab_size
        _, *layers = settings.recorded_layers(adapter.layers)
        drafted = settings.draft_vocab_size or vocab
        head = Eagle3Head(Eagle3Config.like(adapter, layer_ids=layers, draft_vocab_size=drafted))
        counts = torch.zeros(vocab, dtype=torch.long)
        for sample in samples:
            counts += sample.tokens[sample.prompt :].bincount(minlength=vocab)
        # The tokens that recorded answers hold most often, ascending.
        head.token_ids.copy_(counts.argsort(descending=True, stable=True)[:drafted].sort()[0])
        return head

    def batch(self, samples: Sequence[TrainingSample], step: int) -> PaddedBatch:
        """Returns samples side by side, with noise on their states in training.

        Args:
            step: of the training, from which the noise follows; behind the last there is none.
        """
        settings, (adapter,) = self.settings, self._adapter
        device, padded = adapter.device, partial(pad_sequence, batch_first=True)
        tokens = padded([sample.tokens for sample in samples]).to(device)  # [rows, entries + 2]
        states = padded([sample.states.float() for sample in samples]).to(device)  # one less
        stored = padded([sample.stored for sample in samples]).to(device)
        with torch.no_grad():
            embeds = adapter.embed_tokens(tokens).float()
        embeds[stored] = torch.cat([sample.embeds for sample in samples]).to(device, embeds.dtype)
        first = torch.tensor([sample.prompt - 1 for sample in samples], device=device)
        lengths = torch.tensor([sample.entries for sample in samples], device=device)
        line = torch.arange(int((lengths - first).max()), device=device)
        valid = line < (lengths - first)[:, None]
        places = torch.where(valid, first[:, None] + line, 0)
        targets, states = _at(states, places + 1), states[:, :-1]
        if settings.noise and settings.format == "eagle" and step < settings.steps:
            # EAGLE's: uniform, `noise * 512 / length` from end to end.
            rng = np.random.default_rng((settings.seed, step))
            drawn = rng.random(tuple(states.shape), dtype=np.float32) - 0.5
            scale = (settings.noise * 512 / lengths.float())[:, None, None]
            states = states + torch.from_numpy(drawn).to(device) * scale
        following = tokens.gather(1, places + 2)
        counted = torch.arange(states.shape[1], device=device).expand(len(states), -1)
        return PaddedBatch(states, embeds[:, 1:-1], places, valid, targets, following, counted)

    def forward(self, batch: PaddedBatch) -> dict[str, Tensor]:
        """Returns `loss`, and its parts `tokens` and, for EAGLE, `states`, each a scalar."""
        settings, adapter = self.settings, self._adapter[0]
        is_eagle = settings.format == "eagle"
        reduced = getattr(self.head, "token_ids", None)
        with torch.no_grad():
            hidden = int(adapter.text_config.hidden_size)
            last = batch.targets[..., :hidden].to(adapter.dtype)
            targets = adapter.logits(last).float().softmax(-1)
            targets = targets if reduced is None else targets[..., reduced]
        weights, parts, distances = [], [], []
        for step, (estimate, valid) in enumerate(unroll(self.head, batch, settings.unroll)):
            share = valid / valid.sum().clamp(min=1)
            entropy = -(targets * self._logits(estimate).log_softmax(-1)).sum(-1)
            parts.append((share * entropy).sum())  # entropy is [rows, span]
            weights.append(1.0 if is_eagle else settings.step_decay**step)
            if is_eagle:
                distance = smooth_l1_loss(estimate.float(), batch.targets, reduction="none")
                distances.append((share * distance.mean(-1)).sum())
        weighed = [weight * part for weight, part in zip(weights, parts, strict=True)]
        tokens = torch.stack(weighed).sum() / sum(weights)
        if not is_eagle:
            return {"loss": tokens, "tokens": tokens.detach()}
        states = torch.stack(distances).mean()
        loss = settings.state_weight * states + settings.token_weight * tokens
        return {"loss": loss, "states": states.detach(), "tokens": tokens.detach()}

    def _logits(self, states: Tensor) -> Tensor:
        """Returns the logits of the tokens that the head can draft."""
        if isinstance(self.head, Eagle3Head):
            return self.head.drafted_logits(states).float()
        return self.head.scores(states, self._adapter[0]).float()

    @torch.no_grad()
    def hits(self, batch: PaddedBatch) -> tuple[Tensor, Tensor]:
        """Returns which places begin greedy drafts of each length, and in which of those all tokens
        are the target's, `[rows, span, depth]` bool."""
        begun, holding, chain = [], [], batch.valid
        for level, (estimate, valid) in enumerate(unroll(self.head, batch, self.settings.depth)):
            if level:  # what the draft below was worth, one place on
                chain = _later(chain[..., None], 1)[..., 0]
            best = self.head.scores(estimate, self._adapter[0]).argmax(-1)
            chain = chain & (best == batch.following) & valid
            begun.append(valid)
            holding.append(chain)
        return torch.stack(begun, -1), torch.stack(holding, -1)

    @torch.no_grad()
    def calibrate(self, batches: Iterable[PaddedBatch]) -> None:
        """Find the temperature under which the target's greedy tokens are the least surprising.

        Args:
            batches: held-out samples.
        """
        surprise = torch.zeros(len(TEMPERATURES), dtype=torch.float64)
        for batch in batches:
            for estimate, valid in unroll(self.head, batch, self.settings.depth):
                scores = self.head.scores(estimate, self._adapter[0])
                scores = scores.float()[valid]
                tokens = batch.following[valid][:, None]  # [places, 1]
                for number, temperature in enumerate(TEMPERATURES):
                    chance = (scores / temperature).log_softmax(-1).gather(1, tokens)
                    # Tokens outside a reduced vocabulary surprise at any temperature.
                    surprise[number] -= float(chance[chance.isfinite()].sum())
        self.temperature = round(TEMPERATURES[int(surprise.argmin())], 4)
