"""Inputs of the text-to-image decoder, captions and codes, and its outputs along them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from transformers import JanusForConditionalGeneration

from sooner.models.hooks import ForwardHooks

from . import words, world


class PaddedCaptions:
    """Captions as the processor writes them: BOS, words, BOI, padded on the left."""

    def __init__(self) -> None:
        self.ids = words.ids()

    def rows(self, pictures: list[world.Picture], blank: Iterable[bool]) -> torch.Tensor:
        """Prompt ids `[rows, longest]`; rows with `blank` are unconditional, as in HF's guidance.

        There every token but BOS and BOI becomes a pad, and the attention mask stays as it was.
        """
        rows = [[self.ids[word] for word in picture.caption.split()] for picture in pictures]
        bos, boi, pad = (self.ids[mark] for mark in (words.BOS, words.BOI, words.PAD))
        rows = [[pad] * len(row) if drop else row for row, drop in zip(rows, blank, strict=True)]
        longest = max(map(len, rows))
        return torch.tensor([[pad] * (longest - len(row)) + [bos, *row, boi] for row in rows])

    def mask(self, prompt: torch.Tensor) -> torch.Tensor:
        """Attention mask of prompts, `[rows, longest]`: all from BOS on."""
        return (prompt == self.ids[words.BOS]).long().cumsum(1)


def predict(
    model: JanusForConditionalGeneration,
    prompt: torch.Tensor,
    mask: torch.Tensor,
    codes: torch.Tensor,
) -> torch.Tensor:
    """Logits of all codes of pictures, teacher-forced: `[rows, tokens, entries]`.

    Arguments are those of `states`.
    """
    _, hidden = states(model, prompt, mask, codes)
    return model.model.generation_head(hidden[:, prompt.shape[1] - 1 :])


def states(
    model: JanusForConditionalGeneration,
    prompt: torch.Tensor,
    mask: torch.Tensor,
    codes: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """States along captions and their pictures.

    Args:
        model: the decoder.
        prompt: ids `[rows, length]`.
        mask: its attention mask.
        codes: `[rows, tokens]`; the last is predicted and never read. Without a picture,
            `[rows, 0]`.

    Returns:
        Output of the layer that the hint reads, and the last one, normalised; both
        `[rows, length + tokens - 1, width]`.
    """
    embeds = model.get_input_embeddings()(prompt)  # [rows, length, width]
    drawn = model.prepare_embeddings_for_image_generation(codes[:, :-1])
    attended = torch.cat([mask, torch.ones_like(codes[:, :-1])], dim=1)
    text, read = model.model.language_model, []
    # A hook of our own: HF's `output_hidden_states` leaves out layers that `grow` put in.
    layer = text.layers[len(text.layers) // 2]
    with ForwardHooks() as hooks:
        hooks.after(layer, lambda *call: read.append(call[-1]))
        last = text(
            inputs_embeds=torch.cat([embeds, drawn.to(embeds.dtype)], dim=1),
            attention_mask=attended,
            position_ids=(attended.cumsum(1) - 1).clamp_min(0),
            use_cache=False,
        ).last_hidden_state
    return read[0], last
