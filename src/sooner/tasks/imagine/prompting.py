"""Prompts of the picture-generating families, each in the format of its training data."""

from __future__ import annotations

from typing import Any

from ...errors import SoonerError
from ..model_types import error_line

LUMINA, LUMINA_SIZE = ("lumina", "lumina2"), (768, 768)


def build_prompt(
    model_type: str,
    processor: Any,
    prompts: list[str],
    size: tuple[int, int] | None = None,
    layout: str | None = None,
) -> dict[str, Any]:
    """Returns processed prompts: `input_ids [rows, width]`, padded, and their `attention_mask`.

    Args:
        size: height and width in pixels, for families whose prompt tells them.
        layout: how a Chameleon writes pictures as tokens, see `ChameleonCanvas`.

    Raises:
        SoonerError: the processor can't; says why.
    """
    options: dict[str, Any] = {}
    if layout in LUMINA:  # the request that Lumina-mGPT was tuned on; width comes first in it
        height, width = size or LUMINA_SIZE
        request = f"Generate an image of {width}x{height} according to the following prompt:\n"
        prompts = [request + prompt for prompt in prompts]
    if model_type == "emu3":  # the size stands in the prompt, in codes
        options["return_for_image_generation"] = True
        if size is not None:
            options |= {"ratio": f"{size[1]}:{size[0]}", "image_area": size[0] * size[1]}
    try:
        if model_type == "janus":  # a chat turn of the user, behind which the picture begins
            options["generation_mode"] = "image"
            if processor.chat_template is not None:
                prompts = [_chat(processor, prompt) for prompt in prompts]
        return dict(processor(text=prompts, padding=True, return_tensors="pt", **options))
    except (ValueError, TypeError, AttributeError) as error:
        raise SoonerError(
            f"the model's processor refuses the prompt: {error_line(error)}"
        ) from error


def _chat(processor: Any, prompt: str) -> str:
    turn = {"role": "user", "content": [{"type": "text", "text": prompt}]}
    return str(processor.apply_chat_template([turn], add_generation_prompt=True))
