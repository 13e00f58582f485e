"""Cohere's: pictures in tiles before a decoder that slides, or positions of several axes."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from . import words
from .plain import SIDE, TEXT, VISION
from .plain_idefics import IDS
from .plain_llava import INDEX, PICTURES, WITH_VIDEO, from_config
from .species import Species

SLIDING = {
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}
"""The last layer sees all, and knows no positions."""


def text() -> Any:
    return transformers.Cohere2Config(**TEXT, **SLIDING, logit_scale=1.0)


def aya_vision() -> Any:
    config = transformers.AyaVisionConfig(
        vision_config=transformers.SiglipVisionConfig(**VISION, vision_use_head=False),
        text_config=text(),
        downsample_factor=2,
        **INDEX,
    )
    return from_config(config)


def cohere2_vision() -> Any:
    config = transformers.Cohere2VisionConfig(
        vision_config=transformers.SiglipVisionConfig(**VISION, vision_use_head=False),
        text_config=text(),
        alignment_intermediate_size=48,
        downsample_factor=2,
        **IDS,
    )
    return from_config(config)


def cohere_compass() -> Any:
    vision = {
        "depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 7,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 32,
        "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1],
    }  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
    config = transformers.CohereCompassConfig(
        vision_config=vision,
        text_config={**TEXT, "rope_parameters": {"full_attention": rope}, "logit_scale": 1.0},
        video_token_id=words.VIDEO,
        vision_start_token_id=words.VISION_START,
        vision_end_token_id=words.VISION_END,
        **IDS,
    )
    return from_config(config)


def tiled(*, first: int, last: int) -> Any:
    """Inputs whose pictures are two tiles of four tokens, a mark before or behind each."""
    tile = [*[words.SEPARATOR] * first, *[words.IMAGE] * 4, *[words.ROW] * last]

    def made(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
        span = [words.VISION_START, *tile, *tile, words.VISION_END]
        inputs, items = words.prompts(kind, rows, seed, lambda item: span)
        if items:
            inputs["pixel_values"] = words.pixels(2 * len(items), 3, SIDE, SIDE, seed=seed)
        return inputs

    return made


def stamped(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is 4 x 6 patches, six tokens; a video two pairs of frames of four tokens each, and
    a time before each pair."""
    pair = [words.VISION_START, *[words.VIDEO] * 4, words.VISION_END]
    image = [words.VISION_START, *[words.IMAGE] * 6, words.VISION_END]
    spans = {"image": image, "video": [15, *pair, 16, *pair]}
    inputs, items = words.prompts(kind, rows, seed, spans.__getitem__)
    patch = 3 * 2 * 7 * 7
    images, videos = items.count("image"), items.count("video")
    if images:
        inputs["pixel_values"] = words.pixels(images * 24, patch, seed=seed)
        inputs["image_grid_thw"] = torch.tensor([[1, 4, 6]] * images)
    if videos:
        inputs["pixel_values_videos"] = words.pixels(videos * 32, patch, seed=seed)
        inputs["video_grid_thw"] = torch.tensor([[2, 4, 4]] * videos)
    return {**inputs, "mm_token_type_ids": words.types_of(inputs["input_ids"])}


SPECIES = (
    Species(
        "aya_vision", aya_vision, tiled(first=1, last=0), kinds=PICTURES, group="sliding",
    ),
    Species(
        "cohere2_vision", cohere2_vision, tiled(first=0, last=1), kinds=PICTURES, group="sliding",
    ),
    Species("cohere_compass", cohere_compass, stamped, kinds=WITH_VIDEO, group="mrope"),
)  # fmt: skip
