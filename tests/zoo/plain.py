"""Types whose decoders are plain, and LLaVA's: pictures in views and tiles, videos as frames."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from . import tiny as types
from . import words
from .species import Species
from .tiny import VISION, tiny

TEXT: dict[str, Any] = {name: value for name, value in types.TEXT.items() if name != "head_dim"}
"""Sizes of types whose heads are as wide as their states allow."""

SIDE = VISION["image_size"]
PATCHES = (SIDE // VISION["patch_size"]) ** 2
PICTURES = ("text", "image", "images")
WITH_VIDEO = (*PICTURES, "video")

INDEX = {"image_token_index": words.IMAGE, "tie_word_embeddings": False}
"""Fields of configs that name their placeholder by its older name."""
IDS = {"image_token_id": words.IMAGE, "tie_word_embeddings": False}

CLIP = {**VISION, "model_type": "clip_vision_model"}
SIGLIP = {**VISION, "model_type": "siglip_vision_model"}
PIXTRAL = {**VISION, "model_type": "pixtral", "image_size": 56}
SQUARE = {**VISION, "image_size": [SIDE, SIDE], "patch_size": [7, 7]}
LLAMA = {**TEXT, "model_type": "llama"}
QWEN2 = {**TEXT, "model_type": "qwen2"}
MISTRAL = {**TEXT, "model_type": "mistral", "sliding_window": None}

llava = tiny(
    "llava", vision_config=CLIP, text_config=LLAMA, image_token_id=words.IMAGE,
    vision_feature_layer=-1, **INDEX,
)  # fmt: skip
single_view = words.picture_inputs([words.IMAGE] * PATCHES, 3, SIDE, SIDE)
"""A picture is one view of `PATCHES` tokens."""


FRAMES = 4
VIDEO_INDEX = {**INDEX, "video_token_index": words.VIDEO}

GRID = [[SIDE, SIDE], [SIDE, 2 * SIDE]]
TILED = PATCHES + 4 * (8 + 1)
"""Tokens of a picture of `SIDE` x 2 `SIDE`: the whole, and four lines of two tiles, each with its
end."""


llava_next = tiny(
    "llava_next", vision_config=CLIP, text_config=LLAMA, image_grid_pinpoints=GRID,
    vision_feature_layer=-1, **INDEX,
)  # fmt: skip
llava_next_video = tiny(
    "llava_next_video", vision_config=CLIP, text_config=LLAMA, image_grid_pinpoints=GRID,
    vision_feature_layer=-1, **VIDEO_INDEX,
)  # fmt: skip
llava_onevision = tiny(
    "llava_onevision", vision_config=SIGLIP, text_config=QWEN2, image_grid_pinpoints=GRID,
    **VIDEO_INDEX,
)  # fmt: skip
vipllava = tiny(
    "vipllava", vision_config=CLIP, text_config=LLAMA, vision_feature_layer=[-1, -2],
    vision_feature_layers=[-1, -2],  # its name in 5.17
    **INDEX,
)  # fmt: skip
video_llava = tiny(
    "video_llava", vision_config=CLIP, text_config=LLAMA, vision_feature_layer=-1, **VIDEO_INDEX
)
mistral3 = tiny("mistral3", vision_config=PIXTRAL, text_config=MISTRAL, **INDEX)
internvl = tiny("internvl", vision_config=SQUARE, text_config=QWEN2, image_seq_length=4, **IDS)


def fast_vlm() -> Any:
    """Its tower is another convolutional network: timm, which makes its own, may be absent."""
    vision = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"
    )
    vision.hidden_size = 32
    return tiny("fast_vlm", vision_config=vision, text_config=QWEN2, **INDEX)()


def tiles(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is `SIDE` x 2 `SIDE`: a view of the whole and two tiles; a video is frames, pooled
    two by two."""
    spans = {"image": [words.IMAGE] * TILED, "video": [words.VIDEO] * (FRAMES * PATCHES // 4)}
    inputs, items = words.prompts(kind, rows, seed, spans.__getitem__)
    count = items.count("image")
    if count:
        inputs["pixel_values"] = words.pixels(count, 3, 3, SIDE, SIDE, seed=seed)
        inputs["image_sizes"] = torch.tensor([[SIDE, 2 * SIDE]] * count)
    return with_video(inputs, items, seed)


def with_video(inputs: dict[str, Any], items: list[str], seed: int) -> dict[str, Any]:
    count = items.count("video")
    if count:
        pixels = words.pixels(count, FRAMES, 3, SIDE, SIDE, seed=seed)
        inputs["pixel_values_videos"] = pixels
    return inputs


def single_or_several(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A lone picture is tiled, several in a prompt are one view each; of a batch, all or none."""
    lone = kind == "image"
    video = [words.VIDEO] * (FRAMES * 4 + 1)
    spans = {"image": [words.IMAGE] * (TILED if lone else PATCHES + 1), "video": video}
    if kind == "images":
        return several(rows, seed)
    inputs, items = words.prompts(kind, rows, seed, spans.__getitem__)
    if lone:
        inputs["pixel_values"] = words.pixels(len(items), 3, 3, SIDE, SIDE, seed=seed)
        inputs["image_sizes"] = torch.tensor([[SIDE, 2 * SIDE]] * len(items))
        inputs["batch_num_images"] = torch.ones(len(items), dtype=torch.long)
    return with_video(inputs, items, seed)


def several(rows: int, seed: int) -> dict[str, Any]:
    """Makes several pictures; each is one view, padded to as many tiles as the largest has."""
    counts = [len(words.visible("images", row)) for row in range(rows)]
    lone = [count == 1 for count in counts for _ in range(count)]
    lengths = iter([TILED if alone else PATCHES + 1 for alone in lone])
    inputs, items = words.prompts("images", rows, seed, lambda item: [words.IMAGE] * next(lengths))
    inputs["pixel_values"] = words.pixels(len(items), 3, 3, SIDE, SIDE, seed=seed)
    inputs["image_sizes"] = torch.tensor([[SIDE, 2 * SIDE if alone else SIDE] for alone in lone])
    inputs["batch_num_images"] = torch.tensor(counts)
    return inputs


def whole_frames(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is one view; each frame of a video keeps its class token."""
    spans = {"image": [words.IMAGE] * PATCHES, "video": [words.VIDEO] * FRAMES * (PATCHES + 1)}
    inputs, items = words.prompts(kind, rows, seed, spans.__getitem__)
    count = items.count("image")
    if count:
        inputs["pixel_values_images"] = words.pixels(count, 3, SIDE, SIDE, seed=seed)
    return with_video(inputs, items, seed)


LINE = [words.IMAGE] * 3
lines = words.picture_inputs(
    [*LINE, words.ROW, *LINE, words.VISION_END], 3, 28, 42, image_sizes=[28, 42]
)
"""A picture is 28 x 42: two lines of three tokens, each with its end."""


def shots(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is three tiles of four tokens; a video is a tile for each frame, named."""
    frame = words.framed(words.IMAGE, 4)
    frames = [token for number in range(FRAMES) for token in (10 + number, *frame)]
    spans = {"image": words.framed(words.IMAGE, 12), "video": frames}
    inputs, items = words.prompts(kind, rows, seed, spans.__getitem__)
    count = sum(3 if item == "image" else FRAMES for item in items)
    if count:
        inputs["pixel_values"] = words.pixels(count, 3, SIDE, SIDE, seed=seed)
    return inputs


map_of_four = words.picture_inputs([words.IMAGE] * 16, 3, 32, 32)
"""A picture is 32 x 32, of which convolutions leave a map of 2 x 2 or what they are."""

SPECIES = (
    Species("llava", llava, single_view, PICTURES),
    Species("llava_next", llava_next, tiles, kinds=PICTURES, spread=0.2),
    Species("llava_next_video", llava_next_video, tiles, kinds=WITH_VIDEO, spread=0.2),
    Species("llava_onevision", llava_onevision, single_or_several, kinds=WITH_VIDEO, spread=0.2),
    Species("vipllava", vipllava, single_view, kinds=PICTURES),
    Species("video_llava", video_llava, whole_frames, kinds=WITH_VIDEO),
    Species("mistral3", mistral3, lines, kinds=PICTURES),
    Species("internvl", internvl, shots, kinds=WITH_VIDEO),
    Species("fast_vlm", fast_vlm, map_of_four, kinds=PICTURES, spread=0.2),
)
