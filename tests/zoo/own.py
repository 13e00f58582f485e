"""Types with a `generate` of their own, and types that are not causal; text is enough for them."""

from __future__ import annotations

from typing import Any

import torch

from . import words
from .species import Inputs, Species
from .tiny import SPECIAL, TEXT, VISION, tiny

SIDE = VISION["image_size"]
QUERIES = 4
"""Tokens of a picture behind a resampler."""

QFORMER: dict[str, Any] = {
    **TEXT, "num_hidden_layers": 2, "encoder_hidden_size": 32, "max_position_embeddings": 64,
}  # fmt: skip
OPT: dict[str, Any] = {**TEXT, "model_type": "opt", "ffn_dim": 48, "word_embed_proj_dim": 32}
BLIP: dict[str, Any] = {
    "text_config": OPT, "vision_config": VISION, "qformer_config": QFORMER,
    "num_query_tokens": QUERIES,
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


def output(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A prompt of words."""
    return words.prompts("text", rows, seed, lambda item: [])[0]


def captioned(tokens: int) -> Inputs:
    """One picture a row, which so many placeholders stand for, or none."""
    return words.picture_inputs([words.IMAGE] * tokens, 3, SIDE, SIDE)


def instructed(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """The resampler reads the words, too; of a video it is four frames."""
    frames = 4 if kind == "video" else 1
    token = words.VIDEO if kind == "video" else words.IMAGE
    inputs, _ = words.prompts(kind, rows, seed, lambda item: [token] * QUERIES * frames)
    again = output(model, kind, rows, seed)
    shape = (frames, 3, SIDE, SIDE) if kind == "video" else (3, SIDE, SIDE)
    return {
        **inputs,
        "qformer_input_ids": again["input_ids"],
        "qformer_attention_mask": again["attention_mask"],
        "pixel_values": words.pixels(rows, *shape, seed=seed),
    }


def kosmos2(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A mask says which tokens a picture takes; the model's own mask knows no fp64."""
    inputs = captioned(QUERIES)(model, kind, rows, seed)
    inputs["image_embeds_position_mask"] = (inputs["input_ids"] == words.IMAGE).long()
    return inputs


def kosmos25(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """Patches begin with their row and their column, from 1 up."""
    inputs = kosmos2(model, kind, rows, seed)
    if "pixel_values" in inputs:
        del inputs["pixel_values"]
        line = torch.arange(1, 5, dtype=torch.float64)
        spots = torch.cartesian_prod(line, line).expand(rows, -1, -1)  # [rows, 16, 2]
        patches = words.pixels(rows, 16, 147, seed=seed)
        inputs["flattened_patches"] = torch.cat([spots, patches], -1)
    else:
        del inputs["image_embeds_position_mask"]
    return inputs


def custom(
    model_type: str, refused: str, inputs: Any, kinds: tuple[str, ...], **config: Any
) -> Species:
    build = tiny(model_type, **config)
    return Species(model_type, build, inputs, kinds, group="own", refused=refused)


def not_causal(model_type: str, refused: str, **config: Any) -> Species:
    build = tiny(model_type, **config)
    return Species(model_type, build, output, kinds=("text",), group="not-causal", refused=refused)


ENCODER = "is an encoder and a decoder"

PICTURE = ("text", "image")
SELF_CHECK = "fails its self-check on words alone"
SPECIES = (
    custom(
        "blip", "has no language-model head", captioned(0), ("image",),
        text_config={**TEXT, "encoder_hidden_size": 32}, vision_config=VISION,
    ),
    custom(
        "blip-2", "fails its self-check", captioned(QUERIES), ("image",),
        image_token_index=words.IMAGE, **BLIP,
    ),
    custom(
        "instructblip", SELF_CHECK, instructed, ("image",), image_token_index=words.IMAGE, **BLIP
    ),
    custom(
        "instructblipvideo", SELF_CHECK, instructed, ("video",),
        video_token_index=words.VIDEO, **BLIP,
    ),
    custom(
        "kosmos-2", "fails its self-check", kosmos2, ("image",), text_config=KOSMOS,
        vision_config=VISION, latent_query_num=QUERIES, tie_word_embeddings=False,
    ),
    custom(
        "kosmos-2.5", "fails its self-check", kosmos25, PICTURE, text_config=KOSMOS,
        vision_config={**VISION, "patch_embed_hidden_size": 147, "head_dim": 16},
        latent_query_num=QUERIES, tie_word_embeddings=False,
    ),
    custom(
        "git", "answers a tree of drafts otherwise", captioned(0), PICTURE, vision_config=VISION,
        **TEXT,
    ),
    not_causal(
        "florence2", ENCODER, text_config={**BART, "model_type": "bart"},
        vision_config={
            "depths": (1, 1, 1, 1), "embed_dim": (8, 8, 16, 32), "num_heads": (1, 1, 2, 4),
            "num_groups": (1, 1, 2, 4), "window_size": 4, "projection_dim": 32,
        },
        image_token_id=words.IMAGE,
    ),
    not_causal(
        "t5gemma2", ENCODER,
        encoder={
            "text_config": T5GEMMA, "vision_config": VISION, "mm_tokens_per_image": 4,
            "image_token_index": words.IMAGE,
        },
        decoder=T5GEMMA, image_token_index=words.IMAGE,
    ),
    not_causal(
        "pix2struct", ENCODER,
        text_config={**TEXT, **PIX2STRUCT, "num_layers": 2, "num_heads": 4},
        vision_config={**VISION, **PIX2STRUCT, "seq_len": 64},
    ),
    not_causal(
        "pp_formulanet", ENCODER, text_config=BART,
        vision_config={
            **VISION, "output_channels": 8, "global_attn_indexes": (1,), "mlp_dim": 48,
            "window_size": 2, "post_conv_in_channels": 8, "post_conv_mid_channels": 8,
            "post_conv_out_channels": 16, "decoder_hidden_size": 32,
        },
    ),
    not_causal(
        "udop", ENCODER, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, image_size=28,
        patch_size=7, vocab_size=words.VOCAB, max_2d_position_embeddings=32,
    ),
    not_causal(
        "vision-encoder-decoder", ENCODER, encoder={**VISION, "model_type": "vit"},
        decoder={**TEXT, "model_type": "bert", "is_decoder": True, "add_cross_attention": True},
    ),
    not_causal(
        "pi0", "is no causal model",
        vlm_config={
            "model_type": "paligemma", "text_config": TEXT, "vision_config": VISION,
            "projection_dim": 32, "image_token_index": words.IMAGE, "hidden_size": 32,
        },
        dit_config=TEXT,
    ),
    not_causal(
        "diffusion_gemma", "is no causal model",
        text_config={**T5GEMMA, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16},
        vision_config={
            **VISION, "head_dim": 16, "num_key_value_heads": 2, "pooling_kernel_size": 2,
        },
        image_token_id=words.IMAGE, canvas_length=8,
    ),
)  # fmt: skip
