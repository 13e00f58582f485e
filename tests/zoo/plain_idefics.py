"""Idefics and what came of it, Aria, DeepSeek-VL, Ovis: pictures in tiles, some under a mask."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from . import words
from .plain import PATCHES, SIDE, TEXT, VISION
from .plain_llava import FRAMES, INDEX, PICTURES, WITH_VIDEO, from_config, with_video
from .species import Species

IDS = {"image_token_id": words.IMAGE, "tie_word_embeddings": False}
LATENTS = 4


def idefics2() -> Any:
    perceiver = {
        "hidden_size": 32, "resampler_n_latents": LATENTS, "resampler_depth": 1,
        "resampler_n_heads": 2, "resampler_head_dim": 16, "num_key_value_heads": 1,
    }  # fmt: skip
    text = transformers.MistralConfig(**TEXT, sliding_window=None)
    return from_config(
        transformers.Idefics2Config(
            vision_config=VISION, perceiver_config=perceiver, text_config=text, **IDS
        )
    )


def idefics3() -> Any:
    return from_config(
        transformers.Idefics3Config(
            vision_config=VISION, text_config=transformers.LlamaConfig(**TEXT), **IDS
        )
    )


def smolvlm() -> Any:
    return from_config(
        transformers.SmolVLMConfig(
            vision_config=VISION, text_config=transformers.LlamaConfig(**TEXT), **IDS
        )
    )


def aria() -> Any:
    text = {
        "model_type": "aria_text", **TEXT, "moe_num_experts": 4, "moe_topk": 2,
        "moe_num_shared_experts": 1,
    }  # fmt: skip
    config = transformers.AriaConfig(
        vision_config={**VISION, "model_type": "idefics3_vision"},
        text_config=text,
        projector_patch_to_query_dict={PATCHES: LATENTS},
        **INDEX,
    )
    model = from_config(config)
    model.set_experts_implementation("eager")
    return model


def deepseek_vl() -> Any:
    config = transformers.DeepseekVLConfig(
        vision_config=transformers.SiglipVisionConfig(**VISION),
        text_config=transformers.LlamaConfig(**TEXT),
        **IDS,
    )
    return from_config(config)


def deepseek_vl_hybrid() -> Any:
    sharp = transformers.SamVisionConfig(
        hidden_size=16,
        output_channels=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=2 * SIDE,
        patch_size=7,
        window_size=4,
        global_attn_indexes=[1],
        mlp_dim=32,
    )
    config = transformers.DeepseekVLHybridConfig(
        vision_config=transformers.SiglipVisionConfig(**VISION),
        high_res_vision_config=sharp,
        text_config=transformers.LlamaConfig(**TEXT),
        **IDS,
    )
    return from_config(config)


INDICATORS = [141, 142, 143, 144, 145]
"""Beginning and end of a picture, and what stands between its tiles, lines and grids."""


def ovis2() -> Any:
    vision = {**VISION, "vocab_size": 24, "hidden_stride": 2, "num_visual_indicator_tokens": 5}
    config = transformers.Ovis2Config(
        vision_config=vision,
        text_config=transformers.Qwen2Config(**TEXT),
        vocab_size=words.VOCAB,
        hidden_size=32,
        visual_indicator_token_ids=INDICATORS,
        **IDS,
    )
    return from_config(config)


def perception_lm() -> Any:
    """Its tower is CLIP's: timm, which makes its own, may be absent."""
    vision = transformers.CLIPVisionConfig(**VISION)
    vision.model_args = {"embed_dim": VISION["hidden_size"]}
    config = transformers.PerceptionLMConfig(
        vision_config=vision,
        text_config=transformers.LlamaConfig(**TEXT),
        projector_pooling_ratio=2,
        video_token_id=words.VIDEO,
        **IDS,
    )
    return from_config(config)


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


def plain_view(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    inputs, items = words.prompts(kind, rows, seed, lambda item: [words.IMAGE] * PATCHES)
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, SIDE, SIDE, seed=seed)
    return inputs


def two_views(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """Makes a picture twice, once sharper."""
    inputs = plain_view(model, kind, rows, seed)
    if "pixel_values" in inputs:
        size = (len(inputs["pixel_values"]), 3, 2 * SIDE, 2 * SIDE)
        inputs["high_res_pixel_values"] = words.pixels(*size, seed=seed + 1)
    return inputs


def grids(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is the whole and a grid of one line of two tiles, four tokens each."""
    first, last, grid, column, _ = INDICATORS
    tile = [words.IMAGE] * 4
    span = [first, *tile, grid, *tile, column, *tile, last]
    inputs, items = words.prompts(kind, rows, seed, lambda item: span)
    if items:
        inputs["pixel_values"] = words.pixels(3 * len(items), 3, SIDE, SIDE, seed=seed)
    return inputs


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
    Species("deepseek_vl", deepseek_vl, plain_view, kinds=PICTURES),
    Species(
        "deepseek_vl_hybrid",
        deepseek_vl_hybrid,
        two_views,
        kinds=PICTURES,
    ),
    Species("ovis2", ovis2, grids, kinds=PICTURES),
    Species("perception_lm", perception_lm, pooled, kinds=WITH_VIDEO),
)
