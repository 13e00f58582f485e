"""Losses of the recipe: attributes that visual tokens show, and the tokens of captions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import LlavaOnevisionForConditionalGeneration

from . import data


def see(model: LlavaOnevisionForConditionalGeneration, pixels: torch.Tensor) -> torch.Tensor:
    """Projected, pooled features: [frames, 3, side, side] -> [frames, tokens, width]."""
    inner = model.model
    seen = inner.vision_tower(pixels, output_hidden_states=True).hidden_states[-1]
    return inner.apply_pooling(inner.multi_modal_projector(seen))


PARTS = dict(zip(("background", "shape", "colour", "cell"), data.LABEL_SIZES, strict=True))


def name_tokens(
    head: nn.Linear,
    tokens: torch.Tensor,
    labels: torch.Tensor,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """The auxiliary loss, and how often tokens that show a shape are named right.

    Args:
        tokens: [frames, tokens, width].
        labels: [frames, tokens, parts]; a token shows a shape where the second is not 0.
    """
    loss, report = tokens.new_zeros(()), {}
    has_shape = labels[..., 1] > 0  # [frames, tokens]
    logits = head(tokens).split(tuple(PARTS.values()), dim=-1)
    for part, (name, size) in enumerate(PARTS.items()):
        # Most tokens show no shape; unweighted, saying so drowns the rest for long.
        weight = torch.ones(size)
        weight[0] = 1.0 if name == "background" else 0.2
        flat = labels[..., part].flatten()
        loss = loss + cross_entropy(logits[part].flatten(0, 1), flat, weight)
        right = logits[part].argmax(-1) == labels[..., part]
        report[name] = round(float(right[has_shape].float().mean()), 3)
    return loss, report


def embed(
    model: LlavaOnevisionForConditionalGeneration,
    ids: torch.Tensor,
    features: torch.Tensor,
    first: int,
) -> torch.Tensor:
    """What the decoder reads: [rows, length, width].

    Args:
        ids: [rows, length].
        features: [rows, frames * tokens, width], from place `first` of each row on.
    """
    inner = model.model
    newline = inner.image_newline.expand(features.shape[0], 1, -1)
    video = torch.cat([features, newline], dim=1)  # [rows, frames * tokens + 1, width]
    embeds = inner.language_model.embed_tokens(ids)  # [rows, length, width]
    return torch.cat([embeds[:, :first], video, embeds[:, first + video.shape[1] :]], dim=1)


def predict(
    model: LlavaOnevisionForConditionalGeneration,
    batch: data.CaptionRows,
    features: torch.Tensor,
    first: int,
    bf16: bool,
    places: torch.Tensor | None = None,
) -> tuple[torch.Tensor, float]:
    """Caption loss and the share of caption tokens predicted right.

    Args:
        features: [rows, frames * tokens, width], from place `first` of each row on.
        bf16: run the decoder under bfloat16 autocast.
        places: the places that the decoder sees, at their own positions [rows, kept]; all of the
            text is among them. None is every place.
    """
    inner = model.model
    embeds = embed(model, batch.ids, features, first)
    labels, positions = batch.labels, {}
    if places is not None:
        embeds = embeds.gather(1, places[..., None].expand(-1, -1, embeds.shape[2]))
        labels = labels.gather(1, places)
        # Without a mask transformers takes gaps in the positions for borders of packed rows.
        positions = {"position_ids": places, "attention_mask": torch.ones_like(places)}
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        hidden = inner.language_model(
            inputs_embeds=embeds, use_cache=False, **positions
        ).last_hidden_state
    hidden = hidden.float()
    known = labels[:, 1:] != data.IGNORE  # [rows, length - 1]
    logits = model.lm_head(hidden[:, :-1][known])  # [known, vocab]
    truth = labels[:, 1:][known]
    right = (logits.argmax(-1) == truth).float().mean()
    return cross_entropy(logits, truth), round(float(right), 4)
