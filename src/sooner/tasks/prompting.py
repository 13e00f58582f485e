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


def eos_ids(model: Any) -> list[int]:
    """Returns ids that end a text of a model, as its generation config has them."""
    ids = model.generation_config.eos_token_id
    return [] if ids is None else list(ids) if isinstance(ids, list | tuple) else [ids]


def build_inputs(processor: Any, frames: Frames, prompt: str, model: Any) -> dict[str, Any]:
    """Returns the model's inputs: `input_ids [1, width]`, mask, and pixels in its dtype.

    The frames are already the ones to be seen, so the processor is told not to sample again but
    is still given the file's rate and their indices, from which some families take timestamps.
    """
    text = chat(processor, prompt)
    batch = processor(
        text=[text],
        videos=[[torch.from_numpy(frames.pixels)]],  # a list for each text
        videos_kwargs={
            "do_sample_frames": False,
            "input_data_format": "channels_last",
            "video_metadata": [metadata(frames.info, frames.indices)],
        },
        return_tensors="pt",
        **bos_options(processor, text),
    )
    return on_device(batch, model)


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


def check_request(processor: Any, model: Any, info: VideoInfo, frames: int, prompt: str) -> None:
    """Refuse more frames than the model has positions for, before any of them is decoded.

    Inputs of processors that can't count without pixels are checked when they are there.

    Raises:
        SoonerError: says how many frames fit.
    """
    if (visual := video_tokens(processor, info, frames)) is not None:
        text = chat(processor, prompt)
        words = len(processor.tokenizer(text, **bos_options(processor, text)).input_ids)
        check_length(model, visual + words, visual, frames)


def check_inputs(model: Any, inputs: dict[str, Any], frames: int) -> int:
    """Returns the room behind a prompt of so many frames, as `check_length`."""
    pictures = getattr(model.config, "image_token_id", -1)  # as which SmolVLM reads frames
    visual = inputs["input_ids"] == getattr(model.config, "video_token_id", pictures)
    return check_length(model, inputs["input_ids"].shape[1], int(visual.sum()), frames)


def check_length(model: Any, width: int, visual: int, frames: int) -> int:
    """Returns the room behind a prompt, in tokens; unlimited models have a million.

    Args:
        width: tokens of the prompt.
        visual: how many of them stand for frames.

    Raises:
        SoonerError: the prompt leaves none; says about how many frames fit.
    """
    limit = max_positions(model)
    if limit is None:
        return 1 << 20
    if width < limit:
        return limit - width
    fit = max(limit - (width - visual) - 1, 0) * frames // max(visual, 1)
    way = f"--frames {fit} fits" if fit > 0 else "use smaller frames or a shorter prompt"
    raise SoonerError(
        f"{frames} frames make a prompt of about {width} tokens, but {type(model).__name__} has "
        f"{limit} positions; {way}"
    )


def video_tokens(processor: Any, info: VideoInfo, frames: int) -> int | None:
    """Returns placeholder tokens of a video of `frames` frames, where the processor can tell."""
    count = getattr(processor, "_get_num_multimodal_tokens", None)
    if count is None:
        return None
    try:
        counts = count(video_sizes=[(frames, info.height, info.width)])
        return int(counts["num_video_tokens"][0])
    except (KeyError, AttributeError, TypeError, ValueError, NotImplementedError):
        return None
