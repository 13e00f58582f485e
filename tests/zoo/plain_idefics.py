"""Idefics and what came of it, Aria, DeepSeek-VL, Ovis: pictures in tiles, some under a mask."""

from __future__ import annotations

from typing import Any

import torch

from . import words
from .plain import (
    CLIP,
    FRAMES,
    IDS,
    INDEX,
    LLAMA,
    MISTRAL,
    PATCHES,
    PICTURES,
    QWEN2,
    SIDE,
    SIGLIP,
    TEXT,
    VISION,
    WITH_VIDEO,
    single_view,
    with_video,
)
from .species import Species
from .tiny import tiny

LATENTS = 4
PERCEIVER = {
    "hidden_size": 32, "resampler_n_latents": LATENTS, "resampler_depth": 1, "resampler_n_heads": 2,
    "resampler_head_dim": 16, "num_key_value_heads": 1,
}  # fmt: skip
idefics2 = tiny(
    "idefics2", vision_config=VISION, perceiver_config=PERCEIVER, text_config=MISTRAL, **IDS
)
idefics3 = tiny("idefics3", vision_config=VISION, text_config=LLAMA, **IDS)
smolvlm = tiny("smolvlm", vision_config=VISION, text_config=LLAMA, **IDS)
aria = tiny(
    "aria",
    vision_config={**VISION, "model_type": "idefics3_vision"},
    text_config={
        **TEXT, "model_type": "aria_text", "moe_num_experts": 4, "moe_topk": 2,
        "moe_num_shared_experts": 1,
    },
    projector_patch_to_query_dict={PATCHES: LATENTS},
    **INDEX,
)  # fmt: skip
SHARP = {
    "hidden_size": 16, "output_channels": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 2 * SIDE, "patch_size": 7, "window_size": 4, "global_attn_indexes": [1],
    "mlp_dim": 32, "model_type": "sam_vision_model",
}  # fmt: skip
deepseek_vl = tiny("deepseek_vl", vision_config=SIGLIP, text_config=LLAMA, **IDS)
deepseek_vl_hybrid = tiny(
    "deepseek_vl_hybrid", vision_config=SIGLIP, high_res_vision_config=SHARP, text_config=LLAMA,
    **IDS,
)  # fmt: skip

INDICATORS = [141, 142, 143, 144, 145]
"""Beginning and end of a picture, and what stands between its tiles, lines and grids."""


ovis2 = tiny(
    "ovis2",
    vision_config={
        **VISION, "vocab_size": 24, "hidden_stride": 2, "num_visual_indicator_tokens": 5,
    },
    text_config=QWEN2,
    vocab_size=words.VOCAB,
    hidden_size=32,
    visual_indicator_token_ids=INDICATORS,
    **IDS,
)  # fmt: skip
perception_lm = tiny(
    "perception_lm",
    vision_config={**CLIP, "model_args": {"embed_dim": VISION["hidden_size"]}},
    text_config=LLAMA,
    projector_pooling_ratio=2,
    video_token_id=words.VIDEO,
    **IDS,
)
"""Its tower is CLIP's: timm, which makes its own, may be absent."""


def in_rows(rows: int, kind: str, tokens: int, each: int, seed: int) -> dict[str, Any]:
    """Pictures stand by rows, `[rows, most, ...]`, those with fewer filled up with zeros."""
    contents = [words.visible(kind, row) for row in range(rows)]
    span = [words.VISION_START, *[words.IMAGE] * tokens, words.VISION_START]
    inputs, items = words.prompts(kind, rows, seed, lambda item: span * each)
    if not items:
        return inputs
    maximum = each * max(len(items) for items in contents)
    pixels = words.pixels(rows, maximum, 3, SIDE, SIDE, seed=seed)
    mask = torch.ones(rows, maximum, SIDE, SIDE, dtype=torch.long)
    for row, items in enumerate(contents):
        pixels[row, each * len(items) :] = 0
        mask[row, each * len(items) :] = 0
    return {**inputs, "pixel_values": pixels, "pixel_attention_mask": mask}


def resampled(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    return in_rows(rows, kind, LATENTS, 1, seed)


def shuffled(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is two tiles of four tokens; a video is its frames."""
    return in_rows(rows, kind, 4, FRAMES if kind == "video" else 2, seed)


def masked(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """The right quarter of each picture is padding."""
    inputs, items = words.prompts(kind, rows, seed, lambda item: [words.IMAGE] * LATENTS)
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, SIDE, SIDE, seed=seed)
        mask = torch.ones(len(items), SIDE, SIDE, dtype=torch.bool)
        mask[:, :, 21:] = False
        inputs["pixel_mask"] = mask
    return inputs


def two_views(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """Makes a picture twice, once sharper."""
    inputs = single_view(model, kind, rows, seed)
    if "pixel_values" in inputs:
        size = (len(inputs["pixel_values"]), 3, 2 * SIDE, 2 * SIDE)
        inputs["high_res_pixel_values"] = words.pixels(*size, seed=seed + 1)
    return inputs


FIRST, LAST, GRID, COLUMN, _ = INDICATORS
TILE = [words.IMAGE] * 4
grids = words.picture_inputs(
    [FIRST, *TILE, GRID, *TILE, COLUMN, *TILE, LAST], 3, SIDE, SIDE, each=3
)
"""A picture is the whole and a grid of one line of two tiles, four tokens each."""


def pooled(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is two tiles of four tokens, a video a tile for each frame."""
    spans = {"image": [words.IMAGE] * 8, "video": [words.VIDEO] * 4 * FRAMES}
    inputs, items = words.prompts(kind, rows, seed, spans.__getitem__)
    count = items.count("image")
    if count:
        inputs["pixel_values"] = words.pixels(count, 2, 3, SIDE, SIDE, seed=seed)
    return with_video(inputs, items, seed)


SPECIES = (
    Species("idefics2", idefics2, resampled, kinds=PICTURES),
    Species("idefics3", idefics3, shuffled, kinds=PICTURES),
    Species("smolvlm", smolvlm, shuffled, kinds=WITH_VIDEO),
    Species("aria", aria, masked, kinds=PICTURES),
    Species("deepseek_vl", deepseek_vl, single_view, kinds=PICTURES),
    Species("deepseek_vl_hybrid", deepseek_vl_hybrid, two_views, kinds=PICTURES),
    Species("ovis2", ovis2, grids, kinds=PICTURES),
    Species("perception_lm", perception_lm, pooled, kinds=WITH_VIDEO),
)
