"""Types with a `generate` of their own, and types that are not causal: both are refused."""

from __future__ import annotations

from typing import Any

from . import words
from .species import Species
from .tiny import SPECIAL, TEXT, VISION, tiny

QFORMER: dict[str, Any] = {
    **TEXT, "num_hidden_layers": 2, "encoder_hidden_size": 32, "max_position_embeddings": 64,
}  # fmt: skip
OPT: dict[str, Any] = {**TEXT, "model_type": "opt", "ffn_dim": 48, "word_embed_proj_dim": 32}
BLIP: dict[str, Any] = {
    "text_config": OPT, "vision_config": VISION, "qformer_config": QFORMER,
    "num_query_tokens": 4,
}  # fmt: skip
KOSMOS: dict[str, Any] = {
    "vocab_size": words.VOCAB, "embed_dim": 32, "layers": 2, "ffn_dim": 48, "attention_heads": 4,
    "max_position_embeddings": 512, **SPECIAL,
}  # fmt: skip
PIX2STRUCT: dict[str, Any] = {"d_ff": 48, "d_kv": 8, "patch_embed_hidden_size": 147}
SLIDING = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
T5GEMMA: dict[str, Any] = {**TEXT, **SLIDING, "num_hidden_layers": 2, "query_pre_attn_scalar": 8}
BART: dict[str, Any] = {
    "vocab_size": words.VOCAB, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "max_position_embeddings": 512, "decoder_start_token_id": words.BOS,
    "forced_eos_token_id": None, **SPECIAL,
}  # fmt: skip


def refused(model_type: str, reason: str, is_causal: bool = True, **config: Any) -> Species:
    """A type that is refused for a reason before it reads a prompt."""
    build = tiny(model_type, **config)
    return Species(model_type, build, words.texts, ("text",), refused=reason, is_causal=is_causal)


ENCODER, SELF_CHECK = "is an encoder and a decoder", "fails its self-check"
SPECIES = (
    refused(
        "blip", "has no language-model head",
        text_config={**TEXT, "encoder_hidden_size": 32}, vision_config=VISION,
    ),
    refused("blip-2", SELF_CHECK, image_token_index=words.IMAGE, **BLIP),
    refused("instructblip", SELF_CHECK, image_token_index=words.IMAGE, **BLIP),
    refused("instructblipvideo", SELF_CHECK, video_token_index=words.VIDEO, **BLIP),
    refused(
        "kosmos-2", SELF_CHECK, text_config=KOSMOS, vision_config=VISION, latent_query_num=4,
        tie_word_embeddings=False,
    ),
    refused(
        "kosmos-2.5", SELF_CHECK, text_config=KOSMOS,
        vision_config={**VISION, "patch_embed_hidden_size": 147, "head_dim": 16},
        latent_query_num=4, tie_word_embeddings=False,
    ),
    refused("git", "answers a tree of drafts otherwise", vision_config=VISION, **TEXT),
    refused(
        "florence2", ENCODER, False, text_config={**BART, "model_type": "bart"},
        vision_config={
            "depths": (1, 1, 1, 1), "embed_dim": (8, 8, 16, 32), "num_heads": (1, 1, 2, 4),
            "num_groups": (1, 1, 2, 4), "window_size": 4, "projection_dim": 32,
        },
        image_token_id=words.IMAGE,
    ),
    refused(
        "t5gemma2", ENCODER, False,
        encoder={
            "text_config": T5GEMMA, "vision_config": VISION, "mm_tokens_per_image": 4,
            "image_token_index": words.IMAGE,
        },
        decoder=T5GEMMA, image_token_index=words.IMAGE,
    ),
    refused(
        "pix2struct", ENCODER, False,
        text_config={**TEXT, **PIX2STRUCT, "num_layers": 2, "num_heads": 4},
        vision_config={**VISION, **PIX2STRUCT, "seq_len": 64},
    ),
    refused(
        "pp_formulanet", ENCODER, False, text_config=BART,
        vision_config={
            **VISION, "output_channels": 8, "global_attn_indexes": (1,), "mlp_dim": 48,
            "window_size": 2, "post_conv_in_channels": 8, "post_conv_mid_channels": 8,
            "post_conv_out_channels": 16, "decoder_hidden_size": 32,
        },
    ),
    refused(
        "udop", ENCODER, False, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        image_size=28, patch_size=7, vocab_size=words.VOCAB, max_2d_position_embeddings=32,
    ),
    refused(
        "vision-encoder-decoder", ENCODER, False, encoder={**VISION, "model_type": "vit"},
        decoder={**TEXT, "model_type": "bert", "is_decoder": True, "add_cross_attention": True},
    ),
    refused(
        "pi0", "is no causal model", False,
        vlm_config={
            "model_type": "paligemma", "text_config": TEXT, "vision_config": VISION,
            "projection_dim": 32, "image_token_index": words.IMAGE, "hidden_size": 32,
        },
        dit_config=TEXT,
    ),
    refused(
        "diffusion_gemma", "is no causal model", False,
        text_config={**T5GEMMA, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16},
        vision_config={
            **VISION, "head_dim": 16, "num_key_value_heads": 2, "pooling_kernel_size": 2,
        },
        image_token_id=words.IMAGE, canvas_length=8,
    ),
)  # fmt: skip
