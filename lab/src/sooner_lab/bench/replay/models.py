"""Real decoders with random weights whose logits a script replaces.

All that costs time is done: embeddings, every layer with its cache, the LM head. Then the few
logits that decide are written over. What is written depends on the last token alone, which each
state carries in its first `CODE` channels: the embedding has it there, and `decode` copies it past
the layers. So an adapter knows of no row, place or round, and the target's script shows in the
target's logits only, a draft's in the draft's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sooner.methods.draft_module import DraftConfig
from sooner.methods.eagle.head import EagleHead
from sooner.models.base import TextModel

from .script import LogitTable

CODE = 3
"""Channels of a state that tell its token, in two digits of 256 (exact in bf16), and who made
it."""

TARGET, HEAD = 0, 1
"""Who makes states: the decoder itself, or a draft head whose estimates the same LM head reads."""

STRIDE = 977
"""By how many tokens the guesses behind two roots next to each other are apart."""


@dataclass(frozen=True)
class DecoderShape:
    """The shape of a text model.

    Attributes:
        layers, width: of the decoder; heads have 32 channels, each two share keys and values, and
            an MLP has twice the width.
        vocab: token ids.
        positions: of the longest text.
    """

    layers: int
    width: int
    vocab: int
    positions: int

    def config(self) -> Any:
        """As Qwen2's config describes it."""
        from transformers import Qwen2Config

        heads = max(self.width // 32, 1)
        return Qwen2Config(
            vocab_size=self.vocab,
            hidden_size=self.width,
            intermediate_size=2 * self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=heads,
            num_key_value_heads=max(heads // 2, 1),
            max_position_embeddings=self.positions,
            tie_word_embeddings=False,
        )


def build(shape: DecoderShape, device: torch.device, dtype: torch.dtype, seed: int) -> Any:
    """A model of this shape with random weights, whose embedding tells the token."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(shape.config(), attn_implementation="sdpa")
    model = model.eval().requires_grad_(False).to(device, dtype)
    with torch.no_grad():
        tokens = torch.arange(shape.vocab, device=device)
        model.get_input_embeddings().weight[:, :CODE] = encode(tokens, dtype)
    return model


def encode(tokens: Tensor, dtype: torch.dtype, maker: int = TARGET) -> Tensor:
    """Tokens `[...]` as channels `[..., CODE]`."""
    digits = torch.stack([tokens // 256, tokens % 256, torch.full_like(tokens, maker)], -1)
    return (digits / 256).to(dtype)


def read_code(channels: Tensor) -> Tensor:
    """The digits of channels `[..., CODE]`, as integers."""
    return (channels.float() * 256).round().long()


class ReplayAdapter(TextModel):
    """A decoder whose script stands in its logits.

    Args:
        model: of `build`.
        tables: its script; behind it, for a target with a draft head, that of the head.

    Attributes:
        guesses: which tokens the model says rightly behind a wrong one, `[vocab]` bool; see
            `_imagined`. `None`: what it says there nobody asks.
    """

    def __init__(self, model: Any, *tables: LogitTable) -> None:
        super().__init__(model)
        ids = torch.cat([table.ids for table in tables])
        logits = torch.cat([table.logits.expand(table.ids.shape) for table in tables])
        self._ids = ids.to(self.device)  # [makers * vocab, ranks]
        self._logits = logits.to(self.device, self.dtype)  # as large
        self._digits = torch.tensor([256, 1, self.vocab_size], device=self.device)
        self.guesses: Tensor | None = None

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        hidden = super().decode(embeds, positions, **kwargs)
        code = embeds[..., :CODE]
        if self.guesses is not None and _is_chain(embeds, kwargs):
            tokens = (read_code(code) * self._digits).sum(-1)
            code = encode(self._imagined(tokens, self.guesses), code.dtype)
        hidden[..., :CODE] = code
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        logits = super().logits(hidden)
        states = (read_code(hidden[..., :CODE]) * self._digits).sum(-1)  # [rows, entries]
        return logits.scatter_(-1, self._ids[states], self._logits[states])

    def _imagined(self, tokens: Tensor, guesses: Tensor) -> Tensor:
        """What each entry of chains `[rows, entries]` takes itself for, behind a wrong token too.

        A model that reads a wrong token may still say the right one some places later: Jacobi
        iteration lives on that. Here an entry whose prefix is wrong goes on from the right token of
        its place if `guesses` has the next one, else from elsewhere. Every root draws anew: it
        reads `guesses` from another place on.
        """
        root, vocab = tokens[:, :1], len(guesses)
        places = (root + torch.arange(tokens.shape[1], device=root.device)) % vocab
        is_right = (tokens == places).long().cumprod(1).bool()
        is_guessed = guesses[(places + STRIDE * root) % vocab]
        return torch.where(is_right | is_guessed, places, (places + vocab // 2) % vocab)


def _is_chain(embeds: Tensor, arguments: Mapping[str, Any]) -> bool:
    block = arguments.get("attention_block")
    return embeds.shape[1] > 1 and block is not None and block.ancestors is None


class ReplayHead(EagleHead):
    """A random draft head whose layer works, and whose estimates carry the token that they were
    made behind, marked as the head's: so the target's LM head reads the head's script in them."""

    @staticmethod
    def scripted(target: ReplayAdapter, seed: int) -> ReplayHead:
        """A head of a target's shape."""
        torch.manual_seed(seed)
        head = ReplayHead(DraftConfig.like(target, target={}))
        return head.eval().requires_grad_(False).to(target.device, target.dtype)

    def fuse(self, embeds: Tensor, states: Tensor) -> Tensor:
        fused = super().fuse(embeds, states)
        fused[..., :CODE] = embeds[..., :CODE]
        return fused

    def estimate(self, fused: Tensor, attended: Tensor) -> Tensor:
        states = super().estimate(fused, attended)
        states[..., :CODE] = fused[..., :CODE]
        states[..., CODE - 1] = HEAD / 256
        return states
