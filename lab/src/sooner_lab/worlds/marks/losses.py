"""The loss of packed rows: the clip is read once, all its segments attend to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy
from transformers import DynamicCache, LlavaOnevisionForConditionalGeneration

from ..video.data import IGNORE
from . import data


@dataclass(frozen=True)
class Verdicts:
    """What a model says in place of each token of the answers.

    Attributes:
        loss: mean cross-entropy over the answers' tokens.
        right, need: of each of these, whether the model is right and whether it needs the pixels,
            both bool [rows, told]; rows have equally many.
    """

    loss: torch.Tensor
    right: torch.Tensor
    need: torch.Tensor


def predict(
    model: LlavaOnevisionForConditionalGeneration,
    rows: data.PackedRows,
    head: list[int],
    features: torch.Tensor,
    positions: torch.Tensor,
    first: int,
    bf16: bool = False,
) -> Verdicts:
    """Predict all answers of packed rows.

    Args:
        head: token ids before the video.
        features: of the clips, [rows, frames * tokens, width].
        positions: of the prefix [head + frames * tokens + 1], see `data.prefix_positions`.
        first: position of the first token of each segment.
        bf16: run the decoder under bfloat16 autocast.
    """
    inner = model.model
    decoder = inner.language_model
    count = len(features)
    begin = decoder.embed_tokens(torch.tensor([head])).expand(count, -1, -1)
    newline = inner.image_newline.expand(count, 1, -1)
    prefix = torch.cat([begin, features, newline], dim=1)  # [rows, prefix, width]
    seen = data.sees(rows, prefix.shape[1])[None, None]  # [1, 1, text, prefix + text]
    cache = DynamicCache()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        decoder(
            inputs_embeds=prefix,
            position_ids=positions[None].expand(count, -1),
            past_key_values=cache,
            use_cache=True,
        )
        hidden = decoder(
            inputs_embeds=decoder.embed_tokens(rows.ids),
            position_ids=(first + rows.places)[None].expand(count, -1),
            attention_mask=seen.expand(count, -1, -1, -1),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
    # A segment's last token predicts the next segment's first, a request's, which has no label.
    told = rows.labels[:, 1:] != IGNORE  # [rows, text - 1]
    logits = model.lm_head(hidden[:, :-1][told].float())  # [rows * told, vocab]
    truth = rows.labels[:, 1:][told]
    right = logits.detach().argmax(-1) == truth
    shape = (count, -1)
    return Verdicts(
        cross_entropy(logits, truth), right.view(shape), rows.need[:, 1:][told].view(shape)
    )
