"""Prompts of the picture-generating families, each in the format of its training data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import SoonerError
from ..model_types import error_line

Size = tuple[int, int] | None

LUMINA, LUMINA_SIZE = ("lumina", "lumina2"), (768, 768)


def build_prompt(
    model_type: str,
    processor: Any,
    prompts: list[str],
    size: Size = None,
    layout: str | None = None,
) -> dict[str, Any]:
    """Returns processed prompts: `input_ids [rows, width]`, padded, and their `attention_mask`.

    Args:
        size: height and width in pixels, for families whose prompt tells them.
        layout: how a Chameleon writes pictures as tokens, see `ChameleonCanvas`.

    Raises:
        SoonerError: the processor can't; says why.
    """
    try:
        if layout in LUMINA:
            prompts = [_lumina(prompt, size) for prompt in prompts]
        made = BUILDERS[model_type](processor, prompts, size)
    except (ValueError, TypeError, AttributeError) as error:
        raise SoonerError(
            f"the model's processor refuses the prompt: {error_line(error)}"
        ) from error
    return dict(made)


def _janus(processor: Any, prompts: list[str], size: Size) -> Any:
    """Returns a chat turn of the user, behind which the picture begins."""
    if processor.chat_template is not None:
        prompts = [_chat(processor, prompt) for prompt in prompts]
    return processor(text=prompts, generation_mode="image", padding=True, return_tensors="pt")


def _chat(processor: Any, prompt: str) -> str:
    turn = {"role": "user", "content": [{"type": "text", "text": prompt}]}
    return str(processor.apply_chat_template([turn], add_generation_prompt=True))


def _lumina(prompt: str, size: Size) -> str:
    """Returns the request that Lumina-mGPT was tuned on; width comes first in it."""
    height, width = size or LUMINA_SIZE
    return f"Generate an image of {width}x{height} according to the following prompt:\n{prompt}"


def _chameleon(processor: Any, prompts: list[str], size: Size) -> Any:
    """Returns a turn of a conversation; the canvas opens the picture behind it."""
    return processor(text=prompts, padding=True, return_tensors="pt")


def _emu3(processor: Any, prompts: list[str], size: Size) -> Any:
    """The size stands in the prompt, in codes."""
    options: dict[str, Any] = {}
    if size is not None:
        options = {"ratio": f"{size[1]}:{size[0]}", "image_area": size[0] * size[1]}
    return processor(
        text=prompts, return_for_image_generation=True, padding=True, return_tensors="pt", **options
    )


BUILDERS: dict[str, Callable[[Any, list[str], Size], Any]] = {
    "chameleon": _chameleon,
    "emu3": _emu3,
    "janus": _janus,
}
