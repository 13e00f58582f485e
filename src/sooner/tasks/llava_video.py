"""LLaVA-Video and LongVILA with their processor: frames and prompts as published."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from tokenizers import AddedToken
from transformers import AutoTokenizer, GenerationConfig, ProcessorMixin
from transformers import LlavaOnevisionVideoProcessor as VideoProcessor

from ..errors import SoonerError
from ..models.checkpoint import fetched, read_config
from ..models.llava_video import WAY_OUT, load_published

LLAMA_3 = (
    "You are a helpful language and vision assistant. You are able to understand the visual "
    "content that the user provides, and assist the user with a variety of tasks using natural "
    "language."
)
"""What the system says in a LongVILA on Llama 3; others have it in their chat templates."""
JOINED = """{%- set chat = namespace(messages=[]) -%}
{%- if system and messages[0].role != 'system' -%}
{%- set chat.messages = [dict(role='system', content=system)] -%}{%- endif -%}
{%- for message in messages -%}
{%- set chat.text = message.content if message.content is string else '' -%}
{%- for part in message.content if message.content is not string -%}
{%- set chat.text = chat.text + (video if part.type == 'video' else part.text) -%}{%- endfor -%}
{%- set chat.messages = chat.messages + [dict(message, content=chat.text)] -%}{%- endfor -%}
{%- set messages = chat.messages -%}"""
"""Makes strings of contents in parts, as a tokenizer's chat template takes them."""


class FrameProcessor(VideoProcessor):
    """Takes frames evenly from the first to the last, with rounded indices (VILA) or cut ones."""

    rounds = False

    def sample_frames(
        self, metadata: Any, num_frames: Any = None, fps: Any = None, **kwargs: Any
    ) -> Any:
        if num_frames is None:
            return super().sample_frames(metadata, num_frames, fps, **kwargs)
        places = np.linspace(0, metadata.total_num_frames - 1, num_frames)
        return (places.round() if self.rounds else places).astype(int)


class LlavaVideoProcessor(ProcessorMixin):
    """Writes a placeholder for each token of a video and, with `writes_times`, its times."""

    def __init__(
        self, tokenizer: Any = None, video_processor: Any = None, chat_template: Any = None,
        config: Any = None, writes_times: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(tokenizer, video_processor, chat_template=chat_template)
        self.video_token_id, self.frame_tokens = config.video_token_id, config.frame_tokens
        self.video_token = tokenizer.convert_ids_to_tokens(config.video_token_id)
        self.writes_times = writes_times

    def replace_video_token(
        self, video_inputs: Any, video_idx: int, video_metadata: Any = None, **options: Any
    ) -> str:
        frames = len(video_inputs["pixel_values_videos"][video_idx])
        tokens = self.video_token * (frames * self.frame_tokens)
        if not (self.writes_times and video_metadata):
            return tokens
        info = video_metadata[video_idx]
        times = ",".join(f"{index / info.fps:.2f}s" for index in info.frames_indices)
        return (
            f"{tokens}\nThe video lasts for {info.total_num_frames / info.fps:.2f} seconds, and "
            f"{frames} frames are uniformly sampled from it. These frames are located at {times}."
            "Please answer the following questions related to this video."
        )

    def _get_num_multimodal_tokens(self, video_sizes: Any = (), **options: Any) -> dict[str, Any]:
        return {"num_video_tokens": [frames * self.frame_tokens for frames, *_ in video_sizes]}


def load_video_model(name: str, device: Any, dtype: Any, device_map: Any = None) -> tuple[Any, Any]:
    """Returns model and processor of a published folder or hub id; see `load_published`."""
    folder = fetched(name)
    raw = read_config(folder)
    place = folder / "llm" if (is_vila := "llm_cfg" in raw) else folder
    tokenizer: Any = AutoTokenizer.from_pretrained(place)
    text = read_config(place)
    token = tokenizer.convert_ids_to_tokens(text["vocab_size"] - 1)
    token = token or "<video>"  # the embedding has a row without a token
    tokenizer.add_tokens([AddedToken(token, special=True)])
    [newline] = tokenizer("\n", add_special_tokens=False).input_ids
    video = tokenizer.convert_tokens_to_ids(token)
    model = load_published(folder, newline, video, dtype=dtype, device_map=device_map)
    with suppress(OSError):  # not every checkpoint has one
        model.generation_config = GenerationConfig.from_pretrained(place)
    side = model.config.vision_config.image_size
    form: dict[str, Any] = {
        "num_frames": raw.get("num_video_frames", 64), "size": {"height": side, "width": side},
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "rounds": is_vila,
    }  # fmt: skip
    if tokenizer.chat_template is None:
        raise SoonerError(f"the tokenizer of '{name}' has no chat template; {WAY_OUT}")
    values = token if is_vila else f"{token}\n", LLAMA_3 if text["model_type"] == "llama" else ""
    template = f"{{%- set video, system = {values!r} -%}}{JOINED}{tokenizer.chat_template}"
    frames, times = FrameProcessor(**form), raw.get("add_time_instruction", False)
    processor = LlavaVideoProcessor(tokenizer, frames, template, model.config, times)
    return model if device_map else model.to(device), processor
