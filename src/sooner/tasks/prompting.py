"""A model's inputs from frames and a prompt, and how many frames fit into its positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from ..engine import interface
from ..errors import SoonerError
from .frames import Frames, metadata
from .video import VideoInfo

GENERAL_PROMPT = "Describe this video in detail."


def chat(processor: Any, prompt: str, kind: Literal["video", "image"] = "video") -> str:
    """Returns a user message of a video or picture and a question, by the model's chat template.

    An empty prompt is none: the picture is all there is.

    Raises:
        SoonerError: the processor has no chat template.
    """
    content = [{"type": kind}, *([{"type": "text", "text": prompt}] if prompt else [])]
    return written(processor, [{"role": "user", "content": content}])


def written(processor: Any, messages: list[dict[str, Any]]) -> str:
    """Returns messages as the model's chat template writes them, up to where it answers.

    Raises:
        SoonerError: the processor has no chat template.
    """
    try:
        return processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except (ValueError, AttributeError) as error:
        raise SoonerError(
            f"{type(processor).__name__} has no chat template for pictures and videos "
            f"({error}); use the instruction-tuned checkpoint of this model"
        ) from error


def bos_options(processor: Any, text: str) -> dict[str, bool]:
    """Returns what keeps a tokenizer from writing its BOS in front of the chat template's own, as
    transformers' `apply_chat_template(tokenize=True)` has it."""
    bos = getattr(getattr(processor, "tokenizer", processor), "bos_token", None)
    return {"add_special_tokens": False} if bos and text.startswith(bos) else {}


def process(
    processor: Any, pixels: torch.Tensor, info: VideoInfo, indices: list[int], prompt: str,
    **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Returns what a processor makes of frames `[frames, height, width, 3]` and a prompt.

    The frames are already the ones to be seen, so the processor is told not to sample again but
    is still given the file's rate and their indices, from which some families take timestamps.

    Args:
        options: of the processing of frames.
    """
    text = chat(processor, prompt)
    batch = processor(
        text=[text], videos=[[pixels]],  # a list for each text
        videos_kwargs={
            "do_sample_frames": False,
            "input_data_format": "channels_last",
            "video_metadata": [metadata(info, indices)],
            **options,
        },
        return_tensors="pt", **bos_options(processor, text),
    )  # fmt: skip
    return dict(batch)


def build_inputs(processor: Any, frames: Frames, prompt: str, model: Any) -> dict[str, Any]:
    """Returns the model's inputs: `input_ids [1, width]`, mask, and pixels in its dtype."""
    pixels = torch.from_numpy(frames.pixels)
    return on_device(process(processor, pixels, frames.info, frames.indices, prompt), model)


def measure(processor: Any, info: VideoInfo, indices: list[int], prompt: str) -> dict[str, Any]:
    """Returns the inputs that frames will make, before any of them is decoded: pixels have shapes
    alone and lie on the meta device. Empty for processors that have to see pixels."""
    chat(processor, prompt)  # whose errors are the user's
    shape = len(indices), info.height, info.width, 3
    blank = torch.empty(shape, dtype=torch.uint8, device="meta")
    try:
        return process(
            processor, blank, info, indices, prompt, do_rescale=False, do_normalize=False
        )
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return {}


def on_device(batch: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Returns a processor's output with its tensors where the model's embedding is.

    Only pixels take the model's dtype: times in bfloat16 would be off by frames.
    """
    device = model.get_input_embeddings().weight.device
    if device.type == "meta":  # the weights are in another process, where the inputs go from here
        device = torch.device("cpu")
    inputs = dict(batch)
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            dtype = model.dtype if name.startswith("pixel_values") else value.dtype
            inputs[name] = value.to(device, dtype)
    return inputs


def max_positions(model: Any) -> int | None:
    """Returns longest sequence that the model has positions for."""
    return interface.max_positions(model.config.get_text_config(decoder=True))


def visual_places(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """Returns which tokens stand for frames, `[rows, width]` bool."""
    pictures = getattr(model.config, "image_token_id", -1)  # as which SmolVLM reads frames
    return inputs["input_ids"] == getattr(model.config, "video_token_id", pictures)


def positions_left(model: Any, inputs: Mapping[str, Any], what: str, way: str) -> int:
    """Returns the positions behind a prompt, in tokens; unlimited models have a million.

    Raises:
        SoonerError: there are none; says `what` makes the prompt, and the `way` out.
    """
    limit, width = max_positions(model), inputs["input_ids"].shape[1]
    if limit is None or width < limit:
        return 1 << 20 if limit is None else limit - width
    raise SoonerError(
        f"{what} a prompt of {width} tokens, but {type(model).__name__} has {limit} positions; "
        f"{way}"
    )


def check_inputs(model: Any, inputs: Mapping[str, Any], frames: int) -> int:
    """Returns the positions behind a prompt of so many frames.

    Raises:
        SoonerError: there are none; says about how many frames fit.
    """
    visual = int(visual_places(model, inputs).sum())
    spare = (max_positions(model) or 0) - (inputs["input_ids"].shape[1] - visual) - 1
    fit = max(spare, 0) * frames // max(visual, 1)
    way = f"--frames {fit} fits" if fit > 0 else "use smaller frames or a shorter prompt"
    return positions_left(model, inputs, f"{frames} frames make", way)
