"""From pictures and a question to a model's own inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...documents.page import Picture
from ...errors import SoonerError
from ..prompting import chat, max_positions


def picture_inputs(
    processor: Any, pictures: Sequence[Picture], prompt: str, model: Any
) -> dict[str, Any]:
    """The model's inputs for one prompt a picture, padded on the left, `input_ids [rows, width]`.

    Args:
        pictures: RGB, `[height, width, 3]` uint8 each.
        prompt: the question, the same for all.

    Raises:
        SoonerError: the processor refuses a picture.
    """
    message = chat(processor, prompt, "image")
    try:
        batch = processor(
            text=[message] * len(pictures),
            images=[[picture] for picture in pictures],
            padding=True,
            padding_side="left",
            return_tensors="pt",
        )
    except (ValueError, TypeError) as error:
        text = " ".join(str(error).split())[:120]
        raise SoonerError(f"{type(processor).__name__} refuses the picture: {text}") from error
    device = model.get_input_embeddings().weight.device
    return {name: _placed(name, value, device, model.dtype) for name, value in batch.items()}


def _placed(name: str, value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, dtype) if name.startswith("pixel_values") else value.to(device)


def room_for(model: Any, inputs: dict[str, Any], wanted: int) -> int:
    """How many new tokens may follow the prompt, `wanted` at most.

    Raises:
        SoonerError: none; says how long prompt and positions are.
    """
    limit, width = max_positions(model), int(inputs["input_ids"].shape[1])
    if limit is None:
        return wanted
    if width >= limit:
        raise SoonerError(
            f"the page makes a prompt of {width} tokens, but {type(model).__name__} has {limit} "
            "positions; lower the dpi"
        )
    return min(wanted, limit - width)


def seen_size(model: Any, inputs: dict[str, Any]) -> tuple[int, int] | None:
    """Width and height of the picture as the model sees it, in pixels; `None` if it can't be told.

    Models that say boxes in pixels mean these.
    """
    grid = inputs.get("image_grid_thw")
    patch = getattr(getattr(model.config, "vision_config", None), "patch_size", None)
    if grid is None or not isinstance(patch, int):
        return None
    _, down, across = (int(side) for side in grid[0])
    return across * patch, down * patch
