"""Qwen3.5 and after: positions of three axes, and layers that keep a state."""

from __future__ import annotations

from typing import Any

from .mrope import DEEP, EXPERTS, IDS, KINDS, by_frames, rope
from .plain import TEXT
from .species import Species
from .tiny import tiny

LINEAR: dict[str, Any] = {
    **TEXT, "num_hidden_layers": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "head_dim": 12,
    "rope_parameters": rope(1, 1, 1, mrope_interleaved=True, partial_rotary_factor=0.5),
}  # fmt: skip
"""Three layers of four are linear attention behind a convolution; half of a head is turned."""

VISION = {name: value for name, value in DEEP.items() if "deepstack" not in name}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 24}


qwen3_5 = tiny("qwen3_5", text_config=LINEAR, vision_config=VISION, **IDS)
qwen3_5_moe = tiny("qwen3_5_moe", text_config={**LINEAR, **SHARED}, vision_config=VISION, **IDS)
qwen4_exp = tiny(
    "qwen4_exp",
    text_config={
        **LINEAR, **SHARED, "hc_count": 2, "hc_lowrank": 8, "ple_layer_ids": [1],
        "ple_embed_dim": 32, "ngram_size": 2, "heads_per_ngram": 2, "ngram_vocab_size_base": 64,
        "make_ngram_vocab_size_divisible_by": 8, "split_ngram_parts": 1, "indexer_n_heads": 2,
        "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    vision_config=VISION,
    **IDS,
)  # fmt: skip

SPECIES = (
    Species("qwen3_5", qwen3_5, by_frames, KINDS, "recurrent", trees=False),
    Species("qwen3_5_moe", qwen3_5_moe, by_frames, KINDS, "recurrent", trees=False),
    Species("qwen4_exp", qwen4_exp, by_frames, KINDS, "recurrent", "has indexed_attention"),
)
