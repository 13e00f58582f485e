"""Types whose prompts see backwards and forwards, in all or in their pictures."""

from __future__ import annotations

from typing import Any

import torch

from . import words
from .species import Species
from .tiny import TEXT, VISION, tiny

SIDE, PATCH = VISION["image_size"], VISION["patch_size"]
GRID = SIDE // PATCH


def paligemma_inputs(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """Patches are tokens in front of the words; without a suffix, all of a prompt is prefix."""
    inputs, items = words.prompts(kind, rows, seed, lambda item: [words.IMAGE] * GRID**2)
    inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, SIDE, SIDE, seed=seed)
    return inputs


def molmo2_inputs(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is one low and one high view of 2 x 2 tokens, each pooled of 2 x 2 patches."""
    row = [words.IMAGE] * 2

    def span(item: str) -> list[int]:
        if item == "video":  # two frames
            return [words.VISION_START, *row, *row, words.VISION_END] * 2
        high = [words.VISION_START, *row, words.ROW, *row, words.ROW, words.VISION_END]
        return [words.THUMBNAIL, *row, *row, words.VISION_END, *high]

    inputs, items = words.prompts(kind, rows, seed, span)
    inputs["mm_token_type_ids"] = torch.isin(
        inputs["input_ids"], torch.tensor([words.IMAGE, *range(words.VISION_START, words.AUDIO)])
    ).long()
    views = 2 * len(items)
    pixels = words.pixels(views, GRID**2, 3 * PATCH**2, seed=seed)
    corners = torch.tensor([0, 2, 2 * GRID, 2 * GRID + 2])
    within = torch.tensor([0, 1, GRID, GRID + 1])
    pooled = (corners[:, None] + within).repeat(views, 1)  # [views * 4, 4]
    pooled = pooled + GRID**2 * torch.arange(views).repeat_interleave(4)[:, None]
    if "image" in items:
        inputs |= {
            "pixel_values": pixels,
            "image_token_pooling": pooled,
            "image_grids": torch.tensor([[2, 2, 2, 2]] * len(items)),
            "image_num_crops": torch.tensor([2] * len(items)),
        }
    if "video" in items:
        inputs |= {
            "pixel_values_videos": pixels,
            "video_token_pooling": pooled,
            "video_grids": torch.tensor([[2, 2, 2]] * len(items)),
        }
    return inputs


MOLMO2: dict[str, Any] = {
    "text_config": {**TEXT, "additional_vocab_size": 8},
    "vision_config": {
        **VISION, "num_key_value_heads": 2, "head_dim": 16, "num_position_embeddings": GRID**2,
        "image_size": [SIDE, SIDE],
    },
    "adapter_config": {
        "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 48, "text_hidden_size": 32, "vision_feature_layer": [0, 1],
    },
    "image_patch_id": words.IMAGE, "image_start_token_id": words.VISION_START,
    "low_res_image_start_token_id": words.THUMBNAIL, "image_end_token_id": words.VISION_END,
}  # fmt: skip

SPECIES = (
    Species(
        "paligemma",
        tiny(
            "paligemma",
            text_config={**TEXT, "model_type": "gemma"},
            vision_config={**VISION, "model_type": "siglip_vision_model", "vision_use_head": False},
            image_token_index=words.IMAGE,
            projection_dim=32,
            hidden_size=32,
            vocab_size=words.VOCAB,
            tie_word_embeddings=False,
        ),
        paligemma_inputs,
        ("text", "image"),
    ),
    Species(
        "molmo2", tiny("molmo2", **MOLMO2), molmo2_inputs, ("text", "image", "images", "video")
    ),
)
