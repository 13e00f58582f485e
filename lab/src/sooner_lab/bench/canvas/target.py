"""A target that draws by a known law: a real decoder with random weights, the law in its logits.

All that costs time is done: embeddings, layers, cache, LM head. Then the law's logits are written
over. They need the codes to the left, above and in the previous frame, which a buffer has by
position: what a forward reads is written there first, over what stood there. An entry looks at
nothing behind itself, so rejected drafts are never read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sooner.decoding.grid import TokenGrid
from sooner.decoding.interface import Prompt
from sooner.models.canvas import Canvas, Sampling
from sooner.models.video import TextModel

from ...worlds.canvas.law import CanvasLaw
from ..imagine.subjects import Subject
from ..replay.models import DecoderShape, build, read_code

MOST_ROWS = 256
SPAN = 2048
"""Positions of a row: its prompt, its drawing, and what is drafted behind that."""

LOW = -1e4
"""Logit of what is no code."""


class LawCanvas(TextModel, Canvas):
    """A decoder that draws by a law. Rows of one run at a time: they share the buffer.

    Args:
        model: of `replay.models.build`, whose last id opens a drawing.
        law: what it draws by.
        given: codes that the prompt has.
    """

    def __init__(self, model: Any, law: CanvasLaw, given: int = 0) -> None:
        grid = TokenGrid(law.height, law.width, (0, law.codes), law.frames, given=given)
        Canvas.__init__(self, model, grid)
        self.law = law
        self._table = law.table.to(self.device, torch.float32)
        self._said = torch.zeros(MOST_ROWS * SPAN, dtype=torch.long, device=self.device)

    @property
    def sampling(self) -> Sampling:
        """The law itself."""
        return Sampling()

    @property
    def codebook(self) -> Tensor:
        return torch.arange(self.law.codes, device=self.device)[:, None].float()

    def pixels(self, tokens: Tensor) -> Tensor:
        codes = self.grid.pick_codes(tokens).float() / (self.law.codes - 1)
        return codes[..., None].expand(*codes.shape, 3)

    def embed_prompt(self, inputs: Mapping[str, Any]) -> Prompt:
        return _numbered(super().embed_prompt(inputs))

    def repeat_prompt(self, prompt: Prompt, copies: int) -> Prompt:
        return _numbered(super().repeat_prompt(prompt, copies))

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        hidden = super().decode(embeds, positions, **kwargs)
        codes = read_code(embeds[..., :2])
        positions = positions.expand(embeds.shape[:2])
        self._said[positions] = 256 * codes[..., 0] + codes[..., 1]
        # What stands at offset o of a row is place o - 1, and says what stands at place o.
        sources = self.law.sources(positions % SPAN)  # [rows, entries, NEIGHBOURS]
        exists = sources >= 0
        first = positions - positions % SPAN + 1
        seen = self._said[(first[..., None] + sources).clamp(min=0)]
        told = torch.stack([exists.sum(-1), (seen * exists).sum(-1)], -1)
        hidden[..., :2] = told.to(hidden.dtype)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        logits = super().logits(hidden).fill_(LOW)
        many, total = hidden[..., :2].round().long().unbind(-1)
        logits[..., : self.law.codes] = self._table[many, total].to(logits.dtype)
        return logits


def _numbered(prompt: Prompt) -> Prompt:
    """The prompt with each row's positions in a span of its own."""
    assert prompt.rows <= MOST_ROWS
    first = torch.arange(prompt.rows, device=prompt.positions.device) * SPAN
    return replace(
        prompt,
        positions=prompt.positions % SPAN + first[:, None],
        next_position=prompt.next_position % SPAN + first,
    )


def law_subject(law: CanvasLaw, layers: int, width: int, seed: int, given: int = 0) -> Subject:
    """A target of a law, and its numbered prompts: what opens a drawing, and its first codes.

    Args:
        layers, width: of the decoder.
        seed: of weights and prompts.
        given: codes that a prompt has, drawn by the law.
    """
    assert 1 + law.length <= SPAN - MOST_ROWS
    shape = DecoderShape(layers, width, law.codes + 1, MOST_ROWS * SPAN)
    model = build(shape, torch.device("cpu"), torch.float32, seed)
    canvas = LawCanvas(model, law, given)
    known = law.sample(MOST_ROWS, seed)  # whatever is asked for, a number is one prompt

    def prepare(numbers: Sequence[int]) -> dict[str, Any]:
        ids = torch.full((len(numbers), 1 + given), law.codes)
        ids[:, 1:] = known[list(numbers), :given]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    kind = "picture" if law.frames == 1 else "clip"
    return Subject(kind, "law", canvas, prepare)
