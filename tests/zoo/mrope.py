"""Qwen-VL and its like: positions of three axes, pictures as flat patches and their grids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import words
from .plain import TEXT
from .species import Inputs, Species
from .tiny import tiny

PATCH, MERGE, FRAMES = 7, 2, 2
"""Pixels of a patch's side, patches of a token's side, pictures of a patch in time."""

IMAGE_GRID, VIDEO_GRID = (1, 4, 6), (2, 4, 4)
"""Patches in time, height and width."""

IDS: dict[str, Any] = {
    "image_token_id": words.IMAGE, "video_token_id": words.VIDEO,
    "vision_start_token_id": words.VISION_START, "vision_end_token_id": words.VISION_END,
    "tie_word_embeddings": False,
}  # fmt: skip
VISION: dict[str, Any] = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": PATCH,
    "spatial_merge_size": MERGE, "temporal_patch_size": FRAMES,
}  # fmt: skip
DEEP: dict[str, Any] = {
    **VISION, "depth": 3, "out_hidden_size": 32, "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 1],
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
}  # fmt: skip
WINDOWS = {"out_hidden_size": 32, "fullatt_block_indexes": [1], "window_size": 28}


def rope(*section: int, **more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [*section], **more}


INTERLEAVED = {"head_dim": 12, "rope_parameters": rope(2, 2, 2, mrope_interleaved=True)}


def tokens(grid: Sequence[int]) -> int:
    """Tokens of a picture, or of a frame if its grid says 1 for the time."""
    return grid[0] * grid[1] * grid[2] // MERGE**2


def together(item: str) -> list[int]:
    """A video is one run of tokens (Qwen2-VL)."""
    if item == "image":
        return words.framed(words.IMAGE, tokens(IMAGE_GRID))
    return words.framed(words.VIDEO, tokens(VIDEO_GRID))


def still(item: str) -> list[int]:
    """A video is one frame."""
    return together(item) if item == "image" else words.framed(words.VIDEO, tokens((1, 4, 4)))


def stamped(item: str) -> list[int]:
    """A time stamp, here a word, in front of each pair of frames (Qwen3-VL)."""
    if item == "image":
        return together(item)
    frame = words.framed(words.VIDEO, tokens((1, *VIDEO_GRID[1:])))
    return [token for number in range(VIDEO_GRID[0]) for token in (5 + number, *frame)]


def patches(
    items: list[str], seed: int, shape: tuple[int, ...] = (), frames: int = VIDEO_GRID[0]
) -> dict[str, Any]:
    """Pixels of all pictures and videos, patch by patch, and how many each has."""
    inputs: dict[str, Any] = {}
    for item, grid, pixels, name in (
        ("image", IMAGE_GRID, "pixel_values", "image_grid_thw"),
        ("video", (frames, *VIDEO_GRID[1:]), "pixel_values_videos", "video_grid_thw"),
    ):
        if count := items.count(item):
            size = count * grid[0] * grid[1] * grid[2]
            inputs[pixels] = words.pixels(size, *(shape or (3 * FRAMES * PATCH**2,)), seed=seed)
            inputs[name] = torch.tensor([grid] * count)
    return inputs


def spread(
    span: Callable[[str], list[int]],
    *shape: int,
    types: Callable[[torch.Tensor], torch.Tensor] | None = None,
    frames: int = VIDEO_GRID[0],
) -> Inputs:
    """Inputs of prompts whose pictures and videos are patches under a grid.

    Args:
        span: ids that stand for a picture or a video.
        shape: of a patch, by default two pictures of `PATCH` x `PATCH` in a row.
        types: `mm_token_type_ids` of a prompt, if there are any.
        frames: patches in time that a video has.
    """

    def made(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
        inputs, items = words.prompts(kind, rows, seed, span)
        if types is not None:
            inputs["mm_token_type_ids"] = types(inputs["input_ids"])
        return inputs | patches(items, seed, shape, frames)

    return made


def run_on(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """As Qwen2-VL's processor makes them; Qwen2.5-VL's adds how long a pair of frames lasts."""
    inputs = spread(together, types=words.types_of)(model, kind, rows, seed)
    if "video_grid_thw" in inputs and model.config.model_type == "qwen2_5_vl":
        # So slow that the time axis runs ahead of the text behind the video.
        inputs["second_per_grid_ts"] = torch.tensor([12.0] * len(inputs["video_grid_thw"]))
    return inputs


by_frames = spread(stamped, types=words.types_of)
"""As Qwen3-VL's processor makes them."""

TURNED = {**TEXT, "rope_parameters": rope(1, 1, 2)}
DEEP_TEXT = {**TEXT, **INTERLEAVED}

qwen2_vl = tiny(
    "qwen2_vl",
    text_config=TURNED,
    vision_config={**VISION, "embed_dim": 32, "mlp_ratio": 2},
    **IDS,
)
qwen2_5_vl = tiny("qwen2_5_vl", text_config=TURNED, vision_config={**VISION, **WINDOWS}, **IDS)
qwen3_vl = tiny("qwen3_vl", text_config=DEEP_TEXT, vision_config=DEEP, **IDS)
qwen3_vl_moe = tiny("qwen3_vl_moe", text_config={**DEEP_TEXT, **EXPERTS}, vision_config=DEEP, **IDS)
cosmos3_omni = tiny(
    "cosmos3_omni",
    text_config={**DEEP_TEXT, "model_type": "qwen3_vl_text"},
    vision_config={**DEEP, "model_type": "qwen3_vl_vision"},
    **IDS,
)

KINDS = ("text", "image", "images", "video")
SPECIES = (
    Species("cosmos3_omni", cosmos3_omni, by_frames, KINDS),
    Species("qwen2_5_vl", qwen2_5_vl, run_on, KINDS),
    Species("qwen2_vl", qwen2_vl, run_on, KINDS),
    Species("qwen3_vl", qwen3_vl, by_frames, KINDS),
    Species("qwen3_vl_moe", qwen3_vl_moe, by_frames, KINDS),
)
