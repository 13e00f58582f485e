"""Types with recurrent or convolutional layers, or with attention that picks what it sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import words
from .plain import PICTURES
from .sliding import GRID, PATCH, WINDOW, muse_inputs
from .species import Species
from .tiny import TEXT, VISION, tiny

FOUR = {**TEXT, "num_hidden_layers": 4}


lfm2_inputs = words.picture_inputs(
    words.framed(words.IMAGE, GRID**2 // 4), GRID**2, 3 * PATCH**2, spatial_shapes=[GRID, GRID],
    pixel_attention_mask=[1] * GRID**2,
)  # fmt: skip
"""Pictures of 4 x 4 patches with their shapes and a mask; every fourth is a token."""

CANVAS = 8
"""Patches a side of a picture of MiniCPM-V; every sixteenth is a token."""


def minicpm_inputs(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """Patches of all pictures side by side in one strip; a video is two frames."""

    def span(item: str) -> list[int]:
        token, views = (words.VIDEO, 2) if item == "video" else (words.IMAGE, 1)
        return words.framed(token, CANVAS**2 // 16) * views

    inputs, items = words.prompts(kind, rows, seed, span)
    if model.config.model_type == "minicpmv4_7":
        inputs["mm_token_type_ids"] = words.types_of(inputs["input_ids"])
    for name, ending, views in (("image", "", 1), ("video", "_videos", 2)):
        if count := items.count(name) * views:
            inputs[f"pixel_values{ending}"] = words.pixels(
                1, 3, PATCH, count * CANVAS**2 * PATCH, seed=seed
            )
            inputs[f"target_sizes{ending}"] = torch.tensor(
                [[CANVAS, CANVAS]] * count, dtype=torch.int32
            )
    return inputs


QWEN35: dict[str, Any] = {
    **FOUR, "head_dim": 16, "layer_types": ["linear_attention", "full_attention"] * 2,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "mrope_section": [2, 1, 1],
    },
}  # fmt: skip
MINICPM: dict[str, Any] = {
    "text_config": QWEN35, "vision_config": VISION, "insert_layer_id": 0,
    "image_token_id": words.IMAGE, "video_token_id": words.VIDEO,
}  # fmt: skip
MARKS: dict[str, Any] = {
    "image_start_id": words.VISION_START, "image_end_id": words.VISION_END,
    "slice_start_id": words.ROW, "slice_end_id": words.SEPARATOR, "newline_id": words.THUMBNAIL,
}  # fmt: skip


nemotron_inputs = words.picture_inputs(
    words.framed(words.IMAGE, GRID**2 // 4), 3 * PATCH**2, each=GRID**2, image_grid_hw=[GRID, GRID]
)
"""Patches of all pictures with their grids; every fourth is a token."""

NEMOTRON: dict[str, Any] = {
    "text_config": {
        **TEXT, "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "ssm_state_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2,
        "chunk_size": 8, "n_routed_experts": 4, "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 16, "mamba_ssm_cache_dtype": "float64",
    },
    "vision_config": {
        **VISION, "max_img_size": 28, "num_cls_tokens": 1, "num_registers": 1,
        "video_temporal_patch_size": 2, "dtype": "float64",
    },
    "audio_config": None, "projector_hidden_size": 32, "vision_hidden_size": 32,
    "image_token_id": words.IMAGE, "video_token_id": words.VIDEO, "audio_token_id": words.AUDIO,
}  # fmt: skip


def routed_in_fp32(build: Callable[[], Any]) -> Callable[[], Any]:
    """Routers that compute in fp32 keep their weights in it when the model turns to fp64."""

    def built() -> Any:
        model = build()
        for module in model.modules():
            if type(module).__name__.endswith("Router"):
                module._apply = lambda change, recurse=True, this=module: this
        return model

    return built


INKLING: dict[str, Any] = {
    **FOUR, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 8,
    "sliding_window_size": WINDOW, "layer_types": ["hybrid_sliding", "hybrid"] * 2, "d_rel": 4,
    "rel_extent": 16, "moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "unpadded_vocab_size": words.VOCAB,
}  # fmt: skip

MINIMAX: dict[str, Any] = {
    "text_config": {
        **FOUR, "layer_types": ["minimax_m3_sparse", "full_attention"] * 2, "num_local_experts": 4,
        "num_experts_per_tok": 2, "dense_intermediate_size": 48, "shared_intermediate_size": 16,
        "rotary_dim": 4, "index_n_heads": 2, "index_head_dim": 8, "index_block_size": 4,
        "index_topk_blocks": 2,
    },
    "vision_config": {**VISION, "hidden_size": 48, "temporal_patch_size": 2},
    "image_token_index": words.IMAGE, "video_token_index": words.VIDEO,
    "projector_hidden_size": 32,
}  # fmt: skip


def species(
    model_type: str, reason: str, inputs: Any, has_videos: bool = False, **config: Any
) -> Species:
    kinds = (*PICTURES, "video") if has_videos else PICTURES
    build = tiny(model_type, **config)
    if model_type == "inkling2":
        build = routed_in_fp32(build)
    return Species(model_type, build, inputs, kinds, refused=reason, trees=False)


SPECIES = (
    species(
        "lfm2_vl", "", lfm2_inputs,
        text_config={**FOUR, "layer_types": ["conv", "full_attention"] * 2},
        vision_config={**VISION, "num_patches": GRID**2}, image_token_id=words.IMAGE,
        projector_hidden_size=32, tie_word_embeddings=False,
    ),
    species(
        "lfm3_vl", "", muse_inputs, has_videos=True,
        text_config={
            **FOUR, "layer_types": ["conv", "sliding_attention", "conv", "full_attention"],
            "sliding_window": WINDOW, "conv_L_cache": 3,
        },
        vision_config={
            **VISION, "num_key_value_heads": 1, "layer_types": ["conv", "full_attention"],
        },
        image_token_id=words.IMAGE, video_token_id=words.VIDEO,
        vision_start_token_id=words.VISION_START, vision_end_token_id=words.VISION_END,
        projector_hidden_size=32, tie_word_embeddings=False,
    ),
    species("minicpmv4_6", "", minicpm_inputs, has_videos=True, **MINICPM),
    species("minicpmv4_7", "", minicpm_inputs, has_videos=True, **MINICPM, **MARKS),
    species("nemotron_h_omni", "", nemotron_inputs, **NEMOTRON),
    species("minimax_m3_vl", "has minimax_m3_sparse layers", muse_inputs, True, **MINIMAX),
    species(
        "inkling_mm_model", "has hybrid/hybrid_sliding layers", words.texts,
        text_config={**INKLING, "logits_mup_width_multiplier": 1.0},
        vision_config={"patch_size": 8, "n_layers": 5, "text_hidden_size": 32},
        audio_config={"n_mel_bins": 4, "mel_vocab_size": 8, "text_hidden_size": 32},
        image_token_id=words.IMAGE, audio_token_id=words.AUDIO,
    ),
    species(
        "inkling2", "has hybrid/hybrid_sliding layers", words.texts,
        text_config={**INKLING, "n_layers_per_attn_res_block": 2, "log_scaling_n_floor": 16},
        vision_config={
            **VISION, "patch_size": 4, "posemb_grid_size": 4, "projection_hidden_dim": 32,
            "text_hidden_size": 32,
        },
        image_token_id=words.IMAGE,
    ),
)  # fmt: skip
