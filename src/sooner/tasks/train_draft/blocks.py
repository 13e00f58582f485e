"""Blocks of a DFlash drafter in training: where they begin, what they see, what they lose."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from ...methods.dflash.chain import chain_options
from ...methods.dflash.model import DFlashConfig, DFlashModel
from .recording import TrainingSample
from .settings import BlockTraining

IGNORED = -100
"""Target of a place behind the end of an answer."""
FROM_ANCHOR = ("dspark", "domino")
"""Formats whose anchor drafts, too, as their authors have it."""


@dataclass(frozen=True)
class BlockBatch:
    """Samples side by side, padded on the right, and blocks of them.

    Attributes:
        states: of the target's layers, `[rows, tokens, layers * hidden]`.
        tokens: ids, `[rows, tokens + 1]`; what has no id is 0.
        anchors: place of each block's first token, `[rows, blocks]`.
        targets: ids behind it that the block drafts, `[rows, blocks, drafts]`; `IGNORED` behind
            the answer's end and in padding.
    """

    states: Tensor
    tokens: Tensor
    anchors: Tensor
    targets: Tensor


def denoise_blocks(model: DFlashModel, adapter: Any, batch: BlockBatch) -> Tensor:
    """Returns logits of what all blocks of a batch draft, `[rows, blocks, drafts, vocab]`.

    A block sees the context in front of its anchor, and itself; a chain head reads the targets
    before a place, which are what was drafted as long as the draft holds.
    """
    config, (rows, blocks, drafts) = model.config, batch.targets.shape
    size = config.block_size
    context = model.context(batch.states)  # [rows, tokens, hidden]
    device = context.device
    line = torch.arange(context.shape[1], device=device)
    rotation = model.rotation(line[None])
    past = [model.keys_values(n, context, rotation) for n in range(config.num_hidden_layers)]
    places = (batch.anchors[..., None] + torch.arange(size, device=device)).flatten(1)
    tokens = batch.targets.new_full((rows, blocks, size), config.mask_token_id)
    tokens[..., 0] = first = batch.tokens.gather(1, batch.anchors)
    masks = [
        _mask(batch.anchors, size, line, window, causal)
        for window, causal in zip(config.windows, config.causal, strict=True)
    ]
    grouped = config.num_attention_heads != config.num_key_value_heads

    def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        before, after = past[layer]
        keys, values = torch.cat([before, keys], 2), torch.cat([after, values], 2)
        return scaled_dot_product_attention(queries, keys, values, masks[layer], enable_gqa=grouped)

    with torch.no_grad():
        embeds = model.embed(tokens.flatten(1), adapter)
    states = model.denoise(embeds, model.rotation(places), attend).unflatten(1, (blocks, size))
    states = states[:, :, size - drafts :].flatten(0, 1)  # [rows * blocks, drafts, hidden]
    logits = model.logits(states, adapter)
    if model.chain is not None:
        before = torch.cat([first[..., None], batch.targets[..., :-1].clamp(min=0)], -1)
        corrected, memory = list[Tensor](), None
        for token, base, state in zip(
            before.flatten(0, 1).split(1, 1), logits.split(1, 1), states.split(1, 1), strict=True
        ):
            each, memory = model.corrected_logits(token, base, state, memory, adapter)
            corrected.append(each)
        logits = torch.cat(corrected, 1)
    return logits.unflatten(0, (rows, blocks))


def _mask(anchors: Tensor, size: int, line: Tensor, window: int | None, causal: bool) -> Tensor:
    """Returns what entries see of context and blocks, `[rows, 1, entries, slots]` bool."""
    rows, blocks = anchors.shape
    entry = torch.arange(size, device=anchors.device)
    is_context = line < anchors[..., None]  # [rows, blocks, tokens]
    past = is_context[:, :, None].expand(-1, -1, size, -1)
    if window is not None:
        places = anchors[..., None] + entry  # [rows, blocks, size]
        past = past & (places[..., None] - line < window)
    within = entry <= entry[:, None] if causal else torch.ones_like(entry <= entry[:, None])
    diagonal = torch.block_diag(*[within] * blocks).bool().expand(rows, -1, -1)
    return torch.cat([past.flatten(1, 2), diagonal], 2)[:, None]


class BlockTask(nn.Module):
    """A DFlash drafter that learns, with its chain head if it has one.

    Its loss is the cross-entropy with what the target said, the early places of a block counting
    more. Place `k` (from 1) weighs `exp(-(k - 1) / decay)`: a wrong token makes all behind it
    worthless (DFlash, Chen et al. 2026, section 4).

    Args:
        head: what is trained.
        adapter: the target's adapter, frozen.
        settings: the recipe.
    """

    measured, temperature = 128, 1.0

    def __init__(self, head: DFlashModel, adapter: Any, settings: BlockTraining) -> None:
        super().__init__()
        self.head, self.settings = head, settings
        self._adapter = (adapter,)  # in a tuple, so that its model is no part of this module

    @staticmethod
    def first_head(adapter: Any, settings: BlockTraining, samples: object) -> DFlashModel:
        """Returns a drafter with random weights."""
        return DFlashModel(drafter_config(settings, adapter))

    def batch(self, samples: Sequence[TrainingSample], step: int) -> BlockBatch:
        """Returns samples side by side, with blocks at random anchors of their answers.

        A block begins where one may begin in drafting: at any token of the answer but the last.

        Args:
            samples: at least one.
            step: of the training, from which the anchors follow.
        """
        settings, device = self.settings, self._adapter[0].device
        drawn, rng = [], np.random.default_rng((settings.seed, step))
        for sample in samples:
            begin = np.arange(sample.prompt, len(sample.tokens) - 1)
            if len(begin) > settings.anchors:
                begin = np.sort(rng.choice(begin, settings.anchors, replace=False))
            drawn.append(torch.from_numpy(begin))
        anchors = pad_sequence(drawn, batch_first=True)  # [rows, blocks]
        counts = torch.tensor([len(sample) for sample in drawn])[:, None]
        tokens = pad_sequence([sample.tokens for sample in samples], batch_first=True)
        ends = torch.tensor([len(sample.tokens) for sample in samples])[:, None, None]
        behind = 1 + torch.arange(self.head.config.drafts)
        places = anchors[..., None] + behind  # [rows, blocks, drafts]
        inside = (places < ends) & (torch.arange(anchors.shape[1]) < counts)[..., None]
        clamped = places.clamp(max=tokens.shape[1] - 1).flatten(1)
        targets = tokens.gather(1, clamped).view_as(places).masked_fill(~inside, IGNORED)
        states = pad_sequence([sample.states.float() for sample in samples], batch_first=True)
        return BlockBatch(*(part.to(device) for part in (states, tokens, anchors, targets)))

    def forward(self, batch: BlockBatch) -> dict[str, Tensor]:
        """Returns `loss`, and the share of `hits` among all places, each a scalar."""
        logits = denoise_blocks(self.head, self._adapter[0], batch).float()
        targets = batch.targets
        places = torch.arange(targets.shape[2], device=targets.device)
        weight = (-places / self.settings.decay).exp() * (targets != IGNORED)
        each = cross_entropy(
            logits.flatten(0, 2), targets.flatten(), reduction="none", ignore_index=IGNORED
        ).view_as(weight)
        hits = (logits.argmax(-1) == targets).sum() / (targets != IGNORED).sum().clamp(min=1)
        loss = (weight * each).sum() / weight.sum().clamp(min=1e-6)
        return {"loss": loss, "hits": hits.detach()}

    @torch.no_grad()
    def hits(self, batch: BlockBatch) -> tuple[Tensor, Tensor]:
        """Returns which blocks have a place of each depth, and in which of those all places up to
        it are the target's tokens, `[rows, blocks, drafts]` bool."""
        targets, best = batch.targets, denoise_blocks(self.head, self._adapter[0], batch).argmax(-1)
        return targets != IGNORED, (best == targets).long().cumprod(-1).bool()

    def calibrate(self, batches: Iterable[BlockBatch]) -> None:
        """Do nothing: a block is no tree, and its confidences are not compared."""


def drafter_config(settings: BlockTraining, adapter: Any) -> DFlashConfig:
    """Returns layers of the shape of a target's.

    The mask token is the last of the vocabulary, which tokenizers seldom use.
    """
    rank, hidden = settings.chain_rank, adapter.text_config.hidden_size
    sizes: dict[str, dict[str, Any]] = {
        "dspark": {"markov_rank": rank},
        "domino": {"gru_hidden_dim": rank, "emb_dim": rank, "pure_draft_prefix_len": 1},
        "dflash2": {
            "selector_rank": rank, "selector_top_k": min(16, adapter.vocab_size),
            "conv_kernel_size": 2, "conv_group_size": math.gcd(16, hidden),
        },
    }  # fmt: skip
    chain = {"hidden_size": hidden, **sizes.get(settings.format, {})}
    return DFlashConfig.like(
        adapter, num_hidden_layers=settings.layers, block_size=settings.block_size,
        mask_token_id=adapter.vocab_size - 1, layers=settings.recorded_layers(adapter.layers),
        chain=chain_options(chain, "the recipe"), from_anchor=settings.format in FROM_ANCHOR,
    )  # fmt: skip
