"""A target whose text is set: a real decoder with random weights, its logits follow a script.

Unlike in `bench replay`, texts are real ones and tokens come again, so that a token can't tell
where a text is. Positions do: each row's begin at a multiple of `SPAN` of its own, the states
carry them past the layers, and a table has the next token of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sooner.decoding.interface import Prompt
from sooner.models.video import TextModel

from ..replay.models import DecoderShape, build
from ..replay.script import HIGH

SPAN = 8192
"""Positions of a row: its prompt, its text, and what is drafted behind that."""

MOST_ROWS = 256
DIGITS = 3
"""Channels of a state that hold its position, in digits of 256 (exact in bf16)."""


def scripted_target(
    layers: int, width: int, vocab: int, seed: int, device: str = "cpu", dtype: str = "float32"
) -> ScriptedTarget:
    """A target of this shape that has nothing to say yet."""
    shape = DecoderShape(layers, width, vocab, MOST_ROWS * SPAN)
    return ScriptedTarget(build(shape, torch.device(device), getattr(torch, dtype), seed))


class ScriptedTarget(TextModel):
    """A decoder that says the texts of `says`, each behind a prompt of its own.

    Args:
        model: of `replay.models.build`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._next = torch.zeros(0, dtype=torch.long, device=self.device)  # token by position

    def says(
        self, prompts: Sequence[int], texts: Sequence[Sequence[int]], eos: int
    ) -> dict[str, Tensor]:
        """Set what rows say, and make their prompts.

        Args:
            prompts: tokens of each row's prompt, visual ones included.
            texts: token ids of each, without the end.
            eos: said behind them, for ever.

        Returns:
            `input_ids` and `attention_mask`, `[rows, longest prompt]`, padded on the left.
        """
        assert len(texts) <= min(MOST_ROWS, self.vocab_size)
        self._next = torch.full((len(texts) * SPAN,), eos, device=self.device)
        ids = torch.zeros(len(texts), max(prompts), dtype=torch.long, device=self.device)
        mask = torch.zeros_like(ids)
        for row, (length, text) in enumerate(zip(prompts, texts, strict=True)):
            assert length + len(text) < SPAN
            start = row * SPAN + length - 1
            self._next[start : start + len(text)] = torch.tensor(text, device=self.device)
            ids[row, -length:] = row  # which text it is
            mask[row, -length:] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def embed_prompt(self, inputs: Mapping[str, Any]) -> Prompt:
        prompt = super().embed_prompt(inputs)
        first = inputs["input_ids"][:, -1] * SPAN  # every token of a prompt is its number
        return Prompt(
            prompt.embeds,
            prompt.positions + first[:, None],
            prompt.lengths,
            prompt.next_position + first,
            prompt.visual,
            prompt.extras,
            prompt.frames,
        )

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        hidden = super().decode(embeds, positions, **kwargs)
        digits = torch.stack([positions // 256**2, positions // 256 % 256, positions % 256], -1)
        hidden[..., :DIGITS] = (digits / 256).to(hidden.dtype)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        logits = super().logits(hidden)
        digits = (hidden[..., :DIGITS].float() * 256).round().long()
        places = (digits * torch.tensor([256**2, 256, 1], device=hidden.device)).sum(-1)
        said = self._next[places.clamp(max=len(self._next) - 1)]  # [rows, entries]
        return logits.scatter(-1, said[..., None], HIGH)
