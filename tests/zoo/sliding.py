"""Types with layers that see a window of 8 positions, or chunks of 8, which drafts cross."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from transformers import AutoModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from . import words
from .plain import PICTURES
from .species import Species
from .tiny import TEXT, VISION, takes, tiny

WINDOW = 8
KINDS = ["sliding_attention", "full_attention"] * 2
SLIDING: dict[str, Any] = {
    **TEXT, "num_hidden_layers": 4, "sliding_window": WINDOW, "layer_types": KINDS,
}  # fmt: skip
SIDE, PATCH = VISION["image_size"], VISION["patch_size"]
GRID = SIDE // PATCH
COLOURS = 3

GEMMA: dict[str, Any] = {
    "boi_token_index": words.VISION_START, "eoi_token_index": words.VISION_END,
    "image_token_index": words.IMAGE, "mm_tokens_per_image": 4,
    "tie_word_embeddings": False,
}  # fmt: skip
"""Pictures of 16 patches, pooled to 4 tokens."""


gemma3_inputs = words.picture_inputs(
    words.framed(words.IMAGE, 4), COLOURS, SIDE, SIDE, types="token_type_ids"
)
"""Pictures of 4 tokens between marks; `token_type_ids` say which tokens see each other."""


def gemma3(model_type: str) -> Species:
    text = {**SLIDING, "query_pre_attn_scalar": 8}
    build = tiny(model_type, text_config=text, vision_config=VISION, **GEMMA)
    return Species(model_type, build, gemma3_inputs, PICTURES)


def places(grid: int) -> torch.Tensor:
    """(x, y) of each patch of a square picture, `[patches, 2]`."""
    line = torch.arange(grid)
    return torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).flatten(0, 1)


def patched(grid: int, tokens: int, width: int) -> Any:
    """Inputs of Gemma 4: patches with their places, and two frames of a video.

    Args:
        grid: patches a side.
        tokens: of a picture or a frame.
        width: numbers of a patch.
    """

    def inputs_of(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
        def span(item: str) -> list[int]:
            token, views = (words.VIDEO, 2) if item == "video" else (words.IMAGE, 1)
            return words.framed(token, tokens) * views

        inputs, items = words.prompts(kind, rows, seed, span)
        inputs["mm_token_type_ids"] = words.types_of(inputs["input_ids"])
        for name, pixels, spots in (
            ("image", "pixel_values", "image_position_ids"),
            ("video", "pixel_values_videos", "video_position_ids"),
        ):
            count = items.count(name) * (2 if name == "video" else 1)
            if count:
                inputs[pixels] = words.pixels(count, grid**2, width, seed=seed)
                inputs[spots] = places(grid).expand(count, -1, -1).contiguous()
        # transformers 5.17 does not ask for it.
        if "video" in items and takes(model, "num_frames_per_video"):
            inputs["num_frames_per_video"] = torch.full((items.count("video"),), 2)
        return inputs

    return inputs_of


GEMMA4: dict[str, Any] = {
    "boi_token_id": words.VISION_START, "eoi_token_id": words.VISION_END,
    "image_token_id": words.IMAGE, "video_token_id": words.VIDEO, "audio_token_id": words.AUDIO,
    "tie_word_embeddings": False,
}  # fmt: skip
PER_LAYER: dict[str, Any] = {
    "vocab_size_per_layer_input": words.VOCAB, "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 2,
}  # fmt: skip
"""Inputs of each layer, made from ids, and two layers that share the keys of those before."""


llama4_inputs = words.picture_inputs(
    [words.VISION_START, words.THUMBNAIL, *[words.IMAGE] * (GRID**2 // 4), words.VISION_END],
    COLOURS, SIDE, SIDE,
)  # fmt: skip
"""Pictures of one tile; every fourth patch is a token."""

LLAMA4: dict[str, Any] = {
    "text_config": {
        **TEXT, "num_hidden_layers": 4, "attention_chunk_size": WINDOW,
        "layer_types": ["chunked_attention", "full_attention"] * 2, "no_rope_layers": [1, 0, 1, 0],
        "intermediate_size_mlp": 48, "num_local_experts": 4, "num_experts_per_tok": 1,
        "moe_layers": [1],
    },
    "vision_config": {
        **VISION, "intermediate_size": 4 * 32, "vision_output_dim": 32,
        "projector_input_dim": 32, "projector_output_dim": 32,
    },
    "boi_token_index": words.VISION_START, "eoi_token_index": words.VISION_END,
    "image_token_index": words.IMAGE,
}  # fmt: skip


def muse_inputs(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """Pictures of 4 x 4 patches, merged by 4; videos of two pairs of frames."""
    tokens, width = GRID**2 // 4, 2 * COLOURS * PATCH**2

    def span(item: str) -> list[int]:
        if item == "image":
            return words.framed(words.IMAGE, tokens)
        pair = [words.VIDEO] * tokens
        return [words.VISION_START, *pair, words.SEPARATOR, *pair, words.VISION_END]

    inputs, items = words.prompts(kind, rows, seed, span)
    for name, ending, pairs in (("image", "", 1), ("video", "_videos", 2)):
        if count := items.count(name):
            patches = count * pairs * GRID**2
            inputs[f"pixel_values{ending}"] = words.pixels(patches, width, seed=seed)
            inputs[f"{name}_grid_thw"] = torch.tensor([[pairs, GRID, GRID]] * count)
    return inputs


MUSE: dict[str, Any] = {
    "vision_config": {
        **VISION, "pos_emb_height": 4, "pos_emb_width": 4, "max_position_embeddings": 16,
        "layer_types": ["window_attention", "full_attention"],
    },
    "image_token_id": words.IMAGE, "video_token_id": words.VIDEO, "out_hidden_size": 4 * 32,
    "projector_hidden_size": 32,
}  # fmt: skip
MUSE_TEXT: dict[str, Any] = {
    **SLIDING, "qk_scale_factor": 3.0, "output_multiplier": 0.5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "layer_rope_theta": [10000.0, 0, 10000.0, 0],
}  # fmt: skip
SPARK: dict[str, Any] = {
    "moe_intermediate_size": 16, "moe_hidden_size": 16, "num_local_experts": 4,
    "num_experts_per_tok": 2,
}  # fmt: skip
SPARK_AUDIO: dict[str, Any] = {
    "patch_sizes": (4, 2), "hidden_sizes": (8, 16), "depths": (1, 1), "num_hidden_layers": 2,
    "out_hidden_size": 32,
}  # fmt: skip


WIDTH, TOKENS = 32, 4
KINDS_OF_ID: dict[str, dict[str, Any]] = {
    "vision_config": {
        "hidden_size": WIDTH, "vocab_offset": words.IMAGE, "vocab_size": words.AUDIO - words.IMAGE,
    },
    "audio_config": {
        "hidden_size": WIDTH, "vocab_offset": words.AUDIO, "vocab_size": words.VOCAB - words.AUDIO,
        "input_feat_size": 8, "conf_num_attention_heads": 2, "conf_num_hidden_layers": 1,
        "sscp_conv_channel_size": (4, 4),
    },
}  # fmt: skip
"""Ids from `IMAGE` and from `AUDIO` up have embeddings of their own, whoever says them."""

BUILD = tiny(
    "gemma3n",
    text_config={
        **SLIDING, **PER_LAYER, "altup_num_inputs": 2, "laurel_rank": 4,
        "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
    },
    boi_token_id=words.VISION_START, eoi_token_id=words.VISION_END, image_token_id=words.IMAGE,
    audio_token_id=words.AUDIO, vision_soft_tokens_per_image=TOKENS, tie_word_embeddings=False,
    **KINDS_OF_ID,
)  # fmt: skip


class Tower(nn.Module):
    """Stands for the convolutional network, for which timm would have to be installed."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(COLOURS, WIDTH, SIDE // 2, SIDE // 2)

    def forward(self, pixel_values: Tensor, **_: Any) -> BaseModelOutputWithPooling:
        states = self.convolution(pixel_values)  # [pictures, width, 2, 2]
        return BaseModelOutputWithPooling(last_hidden_state=torch.tanh(states))


def gemma3n() -> Any:
    real = AutoModel.from_config

    def from_config(config: Any, **options: Any) -> Any:
        return Tower() if config.model_type == "gemma3n_vision" else real(config, **options)

    with mock.patch.object(AutoModel, "from_config", from_config):
        return BUILD()


gemma3n_inputs = words.picture_inputs(
    words.framed(words.IMAGE, TOKENS), COLOURS, SIDE, SIDE, types="token_type_ids"
)
"""Pictures of 4 tokens between marks."""

SPECIES = (
    Species("gemma3n", gemma3n, gemma3n_inputs, PICTURES),
    gemma3("gemma3"),
    gemma3("shieldgemma2"),
    Species(
        "gemma4",
        tiny(
            "gemma4",
            text_config={
                **SLIDING, **PER_LAYER, "num_global_key_value_heads": 2, "global_head_dim": 16,
            },
            vision_config={
                **VISION, "num_key_value_heads": 2, "head_dim": 16, "pooling_kernel_size": 2,
                "position_embedding_size": 16,
            },
            audio_config=None,
            **GEMMA4,
        ),
        patched(GRID, 4, COLOURS * PATCH**2),
        (*PICTURES, "video"),
    ),
    Species(
        "gemma4_unified",
        tiny(
            "gemma4_unified",
            text_config={**SLIDING, "num_global_key_value_heads": 2, "global_head_dim": 8},
            vision_config={
                "patch_size": PATCH, "pooling_kernel_size": 2, "mm_embed_dim": 32,
                "mm_posemb_size": 16, "output_proj_dims": 32,
            },
            audio_config={"audio_embed_dim": 32},
            **GEMMA4,
        ),
        patched(2, 4, COLOURS * (2 * PATCH) ** 2),
        (*PICTURES, "video"),
    ),
    Species("llama4", tiny("llama4", **LLAMA4), llama4_inputs, PICTURES),
    Species(
        "muse_glimmer",
        tiny("muse_glimmer", text_config=MUSE_TEXT, **MUSE),
        muse_inputs,
        (*PICTURES, "video"),
    ),
    Species(
        "muse_spark",
        tiny("muse_spark", text_config={**MUSE_TEXT, **SPARK}, audio_config=SPARK_AUDIO, **MUSE),
        muse_inputs,
        (*PICTURES, "video"),
    ),
)  # fmt: skip
