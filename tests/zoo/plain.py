"""Types whose decoders are plain: full attention, one axis of positions."""

from __future__ import annotations

from typing import Any

from . import tiny as types
from . import words
from .species import Species
from .tiny import VISION, tiny

TEXT: dict[str, Any] = {name: value for name, value in types.TEXT.items() if name != "head_dim"}
"""Sizes of types whose heads are as wide as their states allow."""

SIDE = VISION["image_size"]
PATCHES = (SIDE // VISION["patch_size"]) ** 2
PICTURES = ("text", "image", "images")
WITH_VIDEO = (*PICTURES, "video")

INDEX = {"image_token_index": words.IMAGE, "tie_word_embeddings": False}
"""Fields of configs that name their placeholder by its older name."""
IDS = {"image_token_id": words.IMAGE, "tie_word_embeddings": False}

CLIP = {**VISION, "model_type": "clip_vision_model"}
SIGLIP = {**VISION, "model_type": "siglip_vision_model"}
PIXTRAL = {**VISION, "model_type": "pixtral", "image_size": 56}
SQUARE = {**VISION, "image_size": [SIDE, SIDE], "patch_size": [7, 7]}
LLAMA = {**TEXT, "model_type": "llama"}
QWEN2 = {**TEXT, "model_type": "qwen2"}
MISTRAL = {**TEXT, "model_type": "mistral", "sliding_window": None}

llava = tiny(
    "llava", vision_config=CLIP, text_config=LLAMA, image_token_id=words.IMAGE,
    vision_feature_layer=-1, **INDEX,
)  # fmt: skip
single_view = words.picture_inputs([words.IMAGE] * PATCHES, 3, SIDE, SIDE)
"""A picture is one view of `PATCHES` tokens."""

SPECIES = (Species("llava", llava, single_view, PICTURES),)
