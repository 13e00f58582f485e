"""Decoders with experts, latent or indexed attention, and others that are nearly plain."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from . import words
from .plain import SIDE, TEXT, VISION
from .plain_idefics import IDS
from .plain_llava import GRID, INDEX, PICTURES, WITH_VIDEO, from_config, lines
from .plain_ocr import EXPERTS, eager_experts
from .species import Species
from .tiny import takes

LATENT = {
    **TEXT, "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1,
}  # fmt: skip
"""Keys and values in a few shared dimensions, and experts."""
INDEXED = {"index_topk": 8, "index_head_dim": 16, "index_n_heads": 2}
"""Attention to the few tokens that an index picks."""


def granite4_vision() -> Any:
    vision = {**VISION, "hidden_size": 64, "num_attention_heads": 1}
    config = transformers.Granite4VisionConfig(
        vision_config=transformers.CLIPVisionConfig(**vision),
        text_config={**TEXT, "num_hidden_layers": 5, "attention_multiplier": 0.35},
        qformer_config={
            "model_type": "blip_2_qformer", "num_hidden_layers": 1, "intermediate_size": 48,
            "cross_attention_frequency": 1, "use_qformer_text_input": False,
        },
        image_grid_pinpoints=GRID,
        downsample_rate="2/4",
        deepstack_layer_map=[[-1, 0]],
        spatial_target_layers=[1, 2, 3, 4],
        **INDEX,
    )  # fmt: skip
    return from_config(config)


def hyperclovax_vision_v2() -> Any:
    vision = {
        "model_type": "qwen2_5_vl_vision", "depth": 2, "hidden_size": 32, "intermediate_size": 48,
        "num_heads": 2, "patch_size": 7, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "out_hidden_size": 32, "fullatt_block_indexes": [1], "window_size": 28,
    }  # fmt: skip
    config = transformers.HyperCLOVAXVisionV2Config(
        vision_config=vision,
        text_config={"model_type": "hyperclovax", **TEXT},
        video_token_id=words.VIDEO,
        **IDS,
    )
    return from_config(config)


def kimi_k25() -> Any:
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "patch_size": 7, "pos_emb_height": 4, "pos_emb_width": 4,
        "pos_emb_time": 4,
    }  # fmt: skip
    text = {
        **LATENT, "model_type": "deepseek_v3", "q_lora_rank": 16, "first_k_dense_replace": 1,
    }  # fmt: skip
    config = transformers.Kimi_K25Config(
        vision_config=vision,
        text_config=text,
        projection_hidden_size=32,
        video_token_id=words.VIDEO,
        **IDS,
    )
    return eager_experts(from_config(config))


def mistral4() -> Any:
    """Trained on so few tokens that queries behind them are scaled by their place."""
    rope = {
        "type": "yarn", "rope_type": "yarn", "rope_theta": 10000.0, "factor": 32.0,
        "original_max_position_embeddings": 16, "max_position_embeddings": 512, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1,
    }  # fmt: skip
    config = transformers.Mistral4Config(**LATENT, q_lora_rank=16, rope_parameters=rope)
    return eager_experts(from_config(config))


def mistral_large4() -> Any:
    config = transformers.MistralLarge4Config(
        vision_config={**VISION, "model_type": "pixtral", "image_size": 56},
        text_config={**LATENT, **INDEXED},
        **INDEX,
    )
    return eager_experts(from_config(config))


def dots3_note() -> Any:
    width = TEXT["hidden_size"]
    narrow = {
        "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16,
        "head_dim": 16, "qk_nope_head_dim": 8, "v_head_dim": 8,
    }  # fmt: skip
    text = {
        **LATENT, **INDEXED, "q_lora_rank": 16, "head_dim": 16, "sliding_window": 8,
        "shared_experts_intermediate_size": 24,
        **{f"swa_{name}": value for name, value in narrow.items()},
    }  # fmt: skip
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "patch_size": 7, "mlp_layer_types": ["dense", "sparse"],
        "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "adapter_in_dim": 32, "adapter_out_dim": width,
    }  # fmt: skip
    audio = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 2, "downsample_hidden_size": 4, "feature_size": 16,
        "adapter_input_size": 32, "adapter_out_dim": width,
    }  # fmt: skip
    config = transformers.Dots3NoteConfig(
        text_config=text,
        vision_config=vision,
        audio_config=audio,
        video_token_id=words.VIDEO,
        audio_token_id=words.AUDIO,
        **IDS,
    )
    return eager_experts(from_config(config))


def step3p7() -> Any:
    text = {
        **TEXT, **EXPERTS, "head_dim": 8, "share_expert_dim": 24, "sliding_window": 8,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    }  # fmt: skip
    config = transformers.Step3p7Config(
        text_config=text, vision_config={**VISION, "image_size": 2 * SIDE}, image_token_id=130
    )
    return eager_experts(from_config(config))


def fuyu() -> Any:
    text = {key: value for key, value in TEXT.items() if key != "num_key_value_heads"}
    text |= {"model_type": "persimmon", "qk_layernorm": True, "hidden_act": "relu2"}
    config = transformers.FuyuConfig(
        text_config=text,
        hidden_size=TEXT["hidden_size"],  # its own in 5.17
        image_size=SIDE,
        patch_size=7,
        **IDS,
    )
    return from_config(config)


def squeezed(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is `SIDE` x 2 `SIDE`: four tokens of the whole, and two lines of two tiles, each
    with its end."""
    inputs, items = words.prompts(kind, rows, seed, lambda item: [words.IMAGE] * (4 + 2 * 5))
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, 3, SIDE, SIDE, seed=seed)
        inputs["image_sizes"] = torch.tensor([[SIDE, 2 * SIDE]] * len(items))
    return inputs


def grids(*patch: int, frames: int) -> Any:
    """Inputs of types whose pictures are patches under a grid: 4 x 6 of them are six tokens, of a
    video 4 x 4 in each of so many frames are four."""

    def made(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
        image = [words.VISION_START, *[words.IMAGE] * 6, words.VISION_END]
        video = [words.VISION_START, *[words.VIDEO] * 4 * frames, words.VISION_END]
        spans = {"image": image, "video": video}
        inputs, items = words.prompts(kind, rows, seed, spans.__getitem__)
        images, videos = items.count("image"), items.count("video")
        if images:
            inputs["pixel_values"] = words.pixels(images * 24, *patch, seed=seed)
            inputs["image_grid_thw"] = torch.tensor([[1, 4, 6]] * images)
        if videos:
            pixels = words.pixels(videos * frames * 16, *patch, seed=seed)
            inputs["pixel_values_videos"] = pixels
            inputs["video_grid_thw"] = torch.tensor([[frames, 4, 4]] * videos)
        return inputs

    return made


def crops(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is a crop of one token and the whole of four; of several each the whole alone."""
    number = 1 if kind == "image" else 0
    crop = [words.SEPARATOR, words.IMAGE, words.ROW] * number
    span = [*crop, words.VISION_START, *[words.IMAGE] * 4, words.VISION_END]
    inputs, items = words.prompts(kind, rows, seed, lambda item: span)
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, 2 * SIDE, 2 * SIDE, seed=seed)
        inputs["num_local_patches"] = [number] * len(items)
    if number:
        inputs["pixel_values_local"] = words.pixels(len(items), 3, SIDE, SIDE, seed=seed + 1)
    return inputs


def patches(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is two lines of four patches, each with its end, and a beginning behind them."""
    line = [*[words.IMAGE] * 4, words.ROW]
    inputs, items = words.prompts(kind, rows, seed, lambda item: [*line, *line, words.BOS])
    if items:
        name = "pixel_values" if takes(model, "pixel_values") else "image_patches"  # as in 5.17
        inputs[name] = words.pixels(len(items) * 8, 7 * 7 * 3, seed=seed)
    return inputs


SPECIES = (
    Species(
        "granite4_vision", granite4_vision, squeezed, kinds=("text",),
        unseen="hands its decoder deepstack_features, vision_mask",
    ),
    Species(
        "hyperclovax_vision_v2", hyperclovax_vision_v2, grids(3 * 2 * 7 * 7, frames=2),
        kinds=WITH_VIDEO,
    ),
    Species("mistral4", mistral4, lines, kinds=("text",)),
    Species(
        "mistral_large4", mistral_large4, lines, kinds=PICTURES, group="indexed",
        refused="has indexed_attention layers",
    ),
    Species(
        "dots3_note", dots3_note, grids(3 * 7 * 7, frames=1), kinds=WITH_VIDEO, group="indexed",
        refused="has indexed_attention layers",
    ),
    Species(
        "step3p7", step3p7, crops, kinds=PICTURES, group="sliding",
    ),
    Species("fuyu", fuyu, patches, kinds=PICTURES),
    Species("kimi_k25", kimi_k25, grids(3, 7, 7, frames=1), kinds=WITH_VIDEO),
)  # fmt: skip
