"""Decoders with experts, latent or indexed attention, and others that are nearly plain."""

from __future__ import annotations

from typing import Any

from . import mrope, words
from .plain import CLIP, GRID, IDS, INDEX, PICTURES, PIXTRAL, SIDE, TEXT, VISION, WITH_VIDEO, lines
from .plain_ocr import EXPERTS
from .species import Species
from .tiny import takes, tiny

LATENT = {
    **TEXT, "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1,
}  # fmt: skip
"""Keys and values in a few shared dimensions, and experts."""
INDEXED = {"index_topk": 8, "index_head_dim": 16, "index_n_heads": 2}
"""Attention to the few tokens that an index picks."""
WITH_VIDEO_ID = {**IDS, "video_token_id": words.VIDEO}


granite4_vision = tiny(
    "granite4_vision",
    vision_config={**CLIP, "hidden_size": 64, "num_attention_heads": 1},
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
hyperclovax_vision_v2 = tiny(
    "hyperclovax_vision_v2",
    vision_config={**mrope.VISION, **mrope.WINDOWS, "model_type": "qwen2_5_vl_vision"},
    text_config={**TEXT, "model_type": "hyperclovax"},
    **WITH_VIDEO_ID,
)
TOWER = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "patch_size": 7,
}  # fmt: skip
kimi_k25 = tiny(
    "kimi_k25",
    vision_config={**TOWER, "pos_emb_height": 4, "pos_emb_width": 4, "pos_emb_time": 4},
    text_config={
        **LATENT, "model_type": "deepseek_v3", "q_lora_rank": 16, "first_k_dense_replace": 1,
    },
    projection_hidden_size=32,
    **WITH_VIDEO_ID,
)  # fmt: skip
mistral4 = tiny(
    "mistral4",
    q_lora_rank=16,
    rope_parameters={
        "type": "yarn", "rope_type": "yarn", "rope_theta": 10000.0, "factor": 32.0,
        "original_max_position_embeddings": 16, "max_position_embeddings": 512, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1,
    },
    **LATENT,
)  # fmt: skip
"""Trained on so few tokens that queries behind them are scaled by their place."""
mistral_large4 = tiny(
    "mistral_large4", vision_config=PIXTRAL, text_config={**LATENT, **INDEXED}, **INDEX
)
NARROW = {
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16,
    "head_dim": 16, "qk_nope_head_dim": 8, "v_head_dim": 8,
}  # fmt: skip
dots3_note = tiny(
    "dots3_note",
    text_config={
        **LATENT, **INDEXED, "q_lora_rank": 16, "head_dim": 16, "sliding_window": 8,
        "shared_experts_intermediate_size": 24,
        **{f"swa_{name}": value for name, value in NARROW.items()},
    },
    vision_config={
        **TOWER, "mlp_layer_types": ["dense", "sparse"], "num_local_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 24, "adapter_in_dim": 32,
        "adapter_out_dim": TEXT["hidden_size"],
    },
    audio_config={
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 2, "downsample_hidden_size": 4, "feature_size": 16,
        "adapter_input_size": 32, "adapter_out_dim": TEXT["hidden_size"],
    },
    audio_token_id=words.AUDIO,
    **WITH_VIDEO_ID,
)  # fmt: skip
step3p7 = tiny(
    "step3p7",
    text_config={
        **TEXT, **EXPERTS, "head_dim": 8, "share_expert_dim": 24, "sliding_window": 8,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    },
    vision_config={**VISION, "image_size": 2 * SIDE},
    image_token_id=words.IMAGE,
)  # fmt: skip
fuyu = tiny(
    "fuyu",
    text_config={
        **{key: value for key, value in TEXT.items() if key != "num_key_value_heads"},
        "model_type": "persimmon", "qk_layernorm": True, "hidden_act": "relu2",
    },
    hidden_size=TEXT["hidden_size"],  # its own in 5.17
    image_size=SIDE,
    patch_size=7,
    **IDS,
)  # fmt: skip

squeezed = words.picture_inputs(
    [words.IMAGE] * (4 + 2 * 5), 3, 3, SIDE, SIDE, image_sizes=[SIDE, 2 * SIDE]
)
"""A picture is `SIDE` x 2 `SIDE`: four tokens of the whole, and two lines of two tiles, each with
its end."""


def crops(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is a crop of one token and the whole of four; of several each the whole alone."""
    number = 1 if kind == "image" else 0
    crop = [words.SEPARATOR, words.IMAGE, words.ROW] * number
    span = [*crop, *words.framed(words.IMAGE, 4)]
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
    Species("granite4_vision", granite4_vision, squeezed, kinds=PICTURES),
    Species(
        "hyperclovax_vision_v2", hyperclovax_vision_v2, mrope.spread(mrope.together),
        kinds=WITH_VIDEO,
    ),
    Species("mistral4", mistral4, lines, kinds=("text",)),
    Species(
        "mistral_large4", mistral_large4, lines, kinds=PICTURES,
        refused="has indexed_attention layers",
    ),
    Species(
        "dots3_note", dots3_note, mrope.spread(mrope.still, 3 * 7 * 7, frames=1),
        kinds=WITH_VIDEO,
        refused="has indexed_attention layers",
    ),
    Species("step3p7", step3p7, crops, kinds=PICTURES),
    Species("fuyu", fuyu, patches, kinds=PICTURES),
    Species("kimi_k25", kimi_k25, mrope.spread(mrope.still, 3, 7, 7, frames=1), kinds=WITH_VIDEO),
)  # fmt: skip
