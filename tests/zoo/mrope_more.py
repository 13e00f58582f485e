"""Omni models and parsers with positions of several axes; of Qwen3.5 layers also keep a state."""

from __future__ import annotations

from typing import Any

import torch

from . import mrope, words
from .mrope import (
    DEEP,
    EXPERTS,
    IDS,
    IMAGE_GRID,
    INTERLEAVED,
    KINDS,
    MERGE,
    PATCH,
    VIDEO_GRID,
    VISION,
    WINDOWS,
    by_frames,
    rope,
    tokens,
)
from .plain import TEXT
from .species import Species
from .tiny import tiny

FLAT = (3 * PATCH**2,)
"""A patch that knows no time."""

TOWER = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "patch_size": PATCH,
}  # fmt: skip
PICTURES = ("text", "image", "images")

AUDIO = {
    "num_mel_bins": 8, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16,
    "d_model": 16, "max_source_positions": 8, "n_window": 2, "output_dim": 32,
}  # fmt: skip
OMNI: dict[str, Any] = {
    "vision_start_token_id": words.VISION_START, "vision_end_token_id": words.VISION_END,
    "audio_start_token_id": words.AUDIO + 1, "audio_end_token_id": words.AUDIO + 2,
    "tie_word_embeddings": False,
}  # fmt: skip


def omni(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """As Qwen-Omni's processors make them: a pair of frames lasts so many seconds."""
    inputs = mrope.spread(mrope.together)(model, kind, rows, seed)
    if "video_grid_thw" in inputs:
        inputs["video_second_per_grid"] = torch.tensor([1.0] * len(inputs["video_grid_thw"]))
    return inputs


qwen2_5_omni_thinker = tiny(
    "qwen2_5_omni_thinker",
    text_config={**TEXT, "rope_parameters": rope(1, 1, 2)},
    vision_config={**VISION, **WINDOWS},
    audio_config=AUDIO,
    image_token_index=words.IMAGE,
    video_token_index=words.VIDEO,
    audio_token_index=words.AUDIO,
    **OMNI,
)
qwen3_omni_moe_thinker = tiny(
    "qwen3_omni_moe_thinker",
    text_config={**TEXT, **INTERLEAVED, **EXPERTS},
    vision_config=DEEP,
    audio_config={**AUDIO, "downsample_hidden_size": 4, "n_window": 50, "max_source_positions": 16},
    image_token_id=words.IMAGE,
    video_token_id=words.VIDEO,
    audio_token_id=words.AUDIO,
    **OMNI,
)


pages = mrope.spread(mrope.together, 3, PATCH, PATCH, types=words.types_of)
"""As PaddleOCR-VL's processor makes them: patches are little pictures."""

paddleocr_vl = tiny(
    "paddleocr_vl",
    text_config={**TEXT, "head_dim": 12, "rope_parameters": rope(1, 2, 3)},
    vision_config={**TOWER, "image_size": 28, "spatial_merge_size": MERGE},
    **IDS,
)


LINES = (IMAGE_GRID[1] // MERGE) * (IMAGE_GRID[2] // MERGE + 1) + 2
lines = mrope.spread(lambda item: [words.IMAGE] * LINES, *FLAT, types=words.types_of)
"""As HunyuanOCR's processor makes them: each line of a picture ends, and so does it itself."""

PUBLISHED = rope(2, 2, 1, 1, factor=1.0, alpha=1000.0) | {"rope_type": "dynamic"}
"""The fixed `alpha` of a type called dynamic, and four axes."""

hunyuan_vl = tiny(
    "hunyuan_vl",
    text_config={**TEXT, "head_dim": 12, "rope_parameters": PUBLISHED},
    vision_config={**TOWER, "hidden_size": 16, "max_image_size": 28, "out_hidden_size": 32},
    image_token_id=words.IMAGE,
    im_start_id=words.VISION_START,
    im_end_id=words.VISION_END,
    tie_word_embeddings=False,
)


edge = mrope.spread(mrope.stamped, *FLAT, types=words.types_of)
"""As Cosmos 3 Edge's processor makes them: time stamps, and patches of one frame."""

cosmos3_edge = tiny(
    "cosmos3_edge",
    text_config={**TEXT, "hidden_size": 48, "head_dim": 12, "rope_parameters": rope(2, 2, 2)},
    vision_config={**TOWER, "num_patches": 16, "spatial_merge_size": MERGE},
    projector_hidden_size=48,
    **IDS,
)


def compressed(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """As VideoLLaMA 3's processor makes them: tokens that repeat the last frame's are left out."""
    mask = torch.ones(VIDEO_GRID[0], tokens((1, *VIDEO_GRID[1:])), dtype=torch.bool)
    mask[1:, 1] = False
    inputs, items = words.prompts(kind, rows, seed, lambda item: timed(item, mask))
    inputs |= mrope.patches(items, seed, FLAT)
    for item in {"image", "video"} & {*items}:
        inputs[f"{item}_merge_sizes"] = torch.full((items.count(item),), MERGE)
    if videos := items.count("video"):
        inputs["video_compression_mask"] = mask.flatten().repeat(videos)
    return inputs


def timed(item: str, mask: torch.Tensor) -> list[int]:
    if item == "image":
        return [words.IMAGE] * tokens(IMAGE_GRID)
    counts = enumerate(mask.sum(1).tolist())
    return [token for frame, count in counts for token in (5 + frame, *[words.VIDEO] * count)]


UNMARKED: dict[str, Any] = {
    "image_token_id": words.IMAGE, "video_token_id": words.VIDEO, "tie_word_embeddings": False,
}  # fmt: skip

video_llama_3 = tiny(
    "video_llama_3",
    text_config={**TEXT, "model_type": "qwen2"},
    vision_config=TOWER,
    **UNMARKED,
)


on_single_axis = mrope.spread(mrope.together)
"""As EXAONE 4.5's processor makes them: Qwen2-VL's without the types."""

EVERY_FOURTH = {"sliding_window": 8, "sliding_window_pattern": 4, "num_hidden_layers": 4}

exaone4_5 = tiny(
    "exaone4_5",
    text_config={**TEXT, **EVERY_FOURTH, "model_type": "exaone4"},
    vision_config={**VISION, **WINDOWS, "num_key_value_heads": 2},
    **UNMARKED,
)


LINEAR: dict[str, Any] = {
    **TEXT, "num_hidden_layers": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "head_dim": 12,
    "rope_parameters": rope(1, 1, 1, mrope_interleaved=True, partial_rotary_factor=0.5),
}  # fmt: skip
"""Three layers of four are linear attention behind a convolution; half of a head is turned."""

STATE_VISION = {name: value for name, value in DEEP.items() if "deepstack" not in name}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 24}


qwen3_5 = tiny("qwen3_5", text_config=LINEAR, vision_config=STATE_VISION, **IDS)
qwen3_5_moe = tiny(
    "qwen3_5_moe", text_config={**LINEAR, **SHARED}, vision_config=STATE_VISION, **IDS
)
qwen4_exp = tiny(
    "qwen4_exp",
    text_config={
        **LINEAR, **SHARED, "hc_count": 2, "hc_lowrank": 8, "ple_layer_ids": [1],
        "ple_embed_dim": 32, "ngram_size": 2, "heads_per_ngram": 2, "ngram_vocab_size_base": 64,
        "make_ngram_vocab_size_divisible_by": 8, "split_ngram_parts": 1, "indexer_n_heads": 2,
        "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    vision_config=STATE_VISION,
    **IDS,
)  # fmt: skip

SPECIES = (
    Species("cosmos3_edge", cosmos3_edge, edge, KINDS),
    Species("exaone4_5", exaone4_5, on_single_axis, KINDS),
    Species("hunyuan_vl", hunyuan_vl, lines, PICTURES),
    Species("paddleocr_vl", paddleocr_vl, pages, PICTURES),
    Species("qwen2_5_omni_thinker", qwen2_5_omni_thinker, omni, KINDS),
    Species("qwen3_omni_moe_thinker", qwen3_omni_moe_thinker, omni, KINDS),
    Species("video_llama_3", video_llama_3, compressed, KINDS),
    Species("qwen3_5", qwen3_5, by_frames, KINDS, trees=False),
    Species("qwen3_5_moe", qwen3_5_moe, by_frames, KINDS, trees=False),
    Species("qwen4_exp", qwen4_exp, by_frames, KINDS, refused="has indexed_attention"),
)  # fmt: skip
