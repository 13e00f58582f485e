"""Cohere's: pictures in tiles before a decoder that slides, or positions of several axes."""

from __future__ import annotations

from . import mrope, words
from .plain import IDS, INDEX, PICTURES, SIDE, SIGLIP, TEXT, WITH_VIDEO
from .species import Inputs, Species
from .tiny import tiny

SLIDING = {
    **TEXT, "model_type": "cohere2", "sliding_window": 8, "logit_scale": 1.0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip
"""The last layer sees all, and knows no positions."""
TOWER = {**SIGLIP, "vision_use_head": False}

aya_vision = tiny(
    "aya_vision", vision_config=TOWER, text_config=SLIDING, downsample_factor=2, **INDEX
)
cohere2_vision = tiny(
    "cohere2_vision", vision_config=TOWER, text_config=SLIDING, alignment_intermediate_size=48,
    downsample_factor=2, **IDS,
)  # fmt: skip
cohere_compass = tiny(
    "cohere_compass",
    vision_config=mrope.DEEP,
    text_config={
        **TEXT, "rope_parameters": {"full_attention": mrope.rope(2, 1, 1)}, "logit_scale": 1.0,
    },
    **mrope.IDS,
)  # fmt: skip

TOKENS = [words.IMAGE] * 4
MARKED, ENDED = [words.SEPARATOR, *TOKENS], [*TOKENS, words.ROW]
"""Tiles of a picture, of which it has two, with a mark before or behind each."""


def tiled(tile: list[int]) -> Inputs:
    return words.picture_inputs(
        [words.VISION_START, *tile * 2, words.VISION_END], 3, SIDE, SIDE, each=2
    )


SPECIES = (
    Species("aya_vision", aya_vision, tiled(MARKED), PICTURES),
    Species("cohere2_vision", cohere2_vision, tiled(ENDED), PICTURES),
    Species("cohere_compass", cohere_compass, mrope.by_frames, WITH_VIDEO),
)
