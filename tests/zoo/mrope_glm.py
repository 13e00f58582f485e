"""GLM and Ernie: positions of three axes, a frame of a video is a picture of its own."""

from __future__ import annotations

from typing import Any

import torch

from . import mrope, words
from .mrope import IMAGE_GRID, KINDS, VIDEO_GRID, VISION, rope, tokens
from .plain import TEXT
from .species import Species
from .tiny import tiny

VIDEO_START, VIDEO_END = 138, 139
IDS: dict[str, Any] = {
    "image_token_id": words.IMAGE, "video_token_id": words.VIDEO,
    "image_start_token_id": words.VISION_START, "image_end_token_id": words.VISION_END,
    "video_start_token_id": VIDEO_START, "video_end_token_id": VIDEO_END,
    "tie_word_embeddings": False,
}  # fmt: skip
HALF = {"hidden_size": 48, "rope_parameters": rope(1, 1, 1, partial_rotary_factor=0.5)}
"""Half of a head is turned."""

GLM_VISION = {**VISION, "image_size": 28, "out_hidden_size": 48}
EXPERTS: dict[str, Any] = {
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1,
}  # fmt: skip


def stamped(item: str) -> list[int]:
    """Frames of a video are pictures with a time stamp, here a word, behind each."""
    if item == "image":
        return mrope.together(item)
    frame = words.framed(words.IMAGE, tokens((1, *VIDEO_GRID[1:])))
    frames = [token for number in range(VIDEO_GRID[0]) for token in (*frame, 5 + number)]
    return [VIDEO_START, *frames, VIDEO_END]


def types_of(ids: torch.Tensor) -> torch.Tensor:
    """A picture's token between a video's start and end is one of a video."""
    inside = (ids == VIDEO_START).cumsum(-1) > (ids == VIDEO_END).cumsum(-1)
    return (ids == words.IMAGE) * (1 + inside.long())


by_pictures = mrope.spread(stamped, types=types_of)
"""As GLM-4.1V's processor makes them."""

GLM: dict[str, Any] = {"text_config": {**TEXT, **HALF}, "vision_config": GLM_VISION, **IDS}
PARTS: dict[str, Any] = {
    "text_config": {**TEXT, **HALF, "model_type": "glm4v_text"},
    "vision_config": {**GLM_VISION, "model_type": "glm4v_vision"},
}

glm4v = tiny("glm4v", **GLM)
glm4v_moe = tiny(
    "glm4v_moe", **{**GLM, "text_config": {**TEXT, **HALF, **EXPERTS, "first_k_dense_replace": 1}}
)
glm46v = tiny("glm46v", **PARTS, **IDS)
glmga = tiny("glmga", **PARTS, **IDS)
glm_ocr = tiny(
    "glm_ocr",
    text_config={**TEXT, "head_dim": 12, "rope_parameters": rope(1, 2, 3)},
    vision_config={**GLM_VISION, "out_hidden_size": 32},
    **IDS,
)
glm5_next = tiny(
    "glm5_next",
    text_config={
        **TEXT, **EXPERTS, "num_hidden_layers": 4, "num_key_value_heads": 4,
        "kv_lora_rank": 16, "q_lora_rank": 16, "v_head_dim": 8, "qk_nope_head_dim": 8,
        "index_topk": 8, "index_head_dim": 8, "index_n_heads": 2, "index_kpool": 2,
        "linear_head_dim": 8, "linear_num_heads": 4, "hc_mult": 2,
        "mlp_layer_types": ["dense", "sparse", "dense", "sparse"],
    },
    vision_config={**GLM_VISION, "out_hidden_size": 32, "projection_intermediate_size": 48},
    **IDS,
)  # fmt: skip


def ernie_types(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """As ERNIE-4.5-VL's processor makes them: a video's marks are its own, and so are experts."""
    inputs, items = words.prompts(kind, rows, seed, ernie_span)
    ids = inputs["input_ids"]
    types = words.types_of(ids)
    seen = types + _marks(ids, words.VISION_START, words.VISION_END)
    seen += 2 * _marks(ids, VIDEO_START, VIDEO_END)
    pixels = mrope.patches(items, seed, (3 * mrope.PATCH**2,))
    return {**inputs, **pixels, "mm_token_type_ids": types, "moe_mm_token_type_ids": seen}


def _marks(ids: torch.Tensor, start: int, end: int) -> torch.Tensor:
    return ((ids == start) | (ids == end)).long()


def ernie_span(item: str) -> list[int]:
    if item == "image":
        return words.framed(words.IMAGE, tokens(IMAGE_GRID))
    return [VIDEO_START, *[words.VIDEO] * (tokens(VIDEO_GRID) // 2), VIDEO_END]


ernie4_5_vl_moe = tiny(
    "ernie4_5_vl_moe",
    text_config={
        **TEXT, "hidden_size": 48, "rope_parameters": rope(2, 2, 2), "moe_num_experts": 4,
        "moe_k": 2, "moe_num_shared_experts": 1, "moe_intermediate_size": [24, 16],
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    },
    vision_config={**VISION, "temporal_merge_size": 2},
    **IDS,
)  # fmt: skip

SPECIES = (
    Species("ernie4_5_vl_moe", ernie4_5_vl_moe, ernie_types, KINDS),
    Species("glm46v", glm46v, by_pictures, KINDS),
    Species("glm4v", glm4v, by_pictures, KINDS),
    Species("glm4v_moe", glm4v_moe, by_pictures, KINDS),
    Species("glm5_next", glm5_next, by_pictures, KINDS, refused="has indexed_attention"),
    Species("glm_ocr", glm_ocr, by_pictures, KINDS),
    Species("glmga", glmga, by_pictures, KINDS),
)
