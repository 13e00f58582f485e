"""LLaVA-Video, LongVILA and VideoChat-Flash with a processor: frames, prompts as published."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, ProcessorMixin
from transformers import LlavaOnevisionVideoProcessor as VideoProcessor
from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from ..errors import SoonerError
from ..models.checkpoint import fetched, read_config
from ..models.llava_video import WAY_OUT, load_published

LLAMA_3 = (
    "You are a helpful language and vision assistant. You are able to understand the visual "
    "content that the user provides, and assist the user with a variety of tasks using natural "
    "language."
)
"""What the system says in a LongVILA on Llama 3; others have it in their chat templates."""
QWEN = "You are a helpful assistant."
"""And in a VideoChat-Flash, also where the chat template of its Qwen says something else."""
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


class ClipProcessor(VideoProcessor):
    """Takes the middles of equal spans of a video, by default a frame a second: a multiple of 8, at
    least 64 where there are as many, at most 512. The last frame is repeated to fill a clip."""

    image_mean, image_std = IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
    fps, temporal_patch_size = 1, 4  # frames of a clip

    def sample_frames(
        self, metadata: Any, num_frames: Any = None, fps: Any = None, **kwargs: Any
    ) -> Any:
        total = metadata.total_num_frames
        if num_frames is None:
            count = max(int(total / metadata.fps * (fps or self.fps)) // 8 * 8, 8)
            num_frames = max(min(count, 512), min(total // 8 * 8, 64))
        spans = np.linspace(0, total, min(num_frames, total) + 1).astype(int)
        middles = (spans[:-1] + spans[1:] - 1) // 2
        return np.pad(middles, (0, num_frames - len(middles)), "edge")

    def _prepare_input_videos(self, *args: Any, **kwargs: Any) -> Any:
        videos = super()._prepare_input_videos(*args, **kwargs)  # each [frames, 3, height, width]
        return [torch.cat([each, each[-1:].repeat(-len(each) % 4, 1, 1, 1)]) for each in videos]


class LlavaVideoProcessor(ProcessorMixin):
    """Writes a placeholder for each token of a video and, with `writes_times`, its times; of clips
    only how many frames there are in which time."""

    def __init__(
        self, tokenizer: Any = None, video_processor: Any = None, chat_template: Any = None,
        config: Any = None, writes_times: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(tokenizer, video_processor, chat_template=chat_template)
        self.video_token_id, self.frame_tokens = config.video_token_id, config.frame_tokens
        self.clip_frames = config.clip_frames
        self.video_token = tokenizer.convert_ids_to_tokens(config.video_token_id)
        self.writes_times = writes_times

    def replace_video_token(
        self, video_inputs: Any, video_idx: int, video_metadata: Any = None, **options: Any
    ) -> str:
        frames = len(video_inputs["pixel_values_videos"][video_idx])
        tokens = self.video_token * (frames // self.clip_frames * self.frame_tokens)
        if not (self.writes_times and video_metadata):
            return tokens
        info = video_metadata[video_idx]
        times = ",".join(f"{index / info.fps:.2f}s" for index in info.frames_indices)
        tokens += (
            f"\nThe video lasts for {info.total_num_frames / info.fps:.2f} seconds, and "
            f"{frames} frames are uniformly sampled from it."
        )
        if self.clip_frames > 1:
            return tokens
        return (
            f"{tokens} These frames are located at {times}."
            "Please answer the following questions related to this video."
        )

    def _get_num_multimodal_tokens(self, video_sizes: Any = (), **options: Any) -> dict[str, Any]:
        clips = (-(-frames // self.clip_frames) for frames, *_ in video_sizes)
        return {"num_video_tokens": [count * self.frame_tokens for count in clips]}


def load_video_model(name: str, device: Any, dtype: Any, device_map: Any = None) -> tuple[Any, Any]:
    """Returns model and processor of a published folder or hub id; see `load_published`."""
    folder = fetched(name)
    raw = read_config(folder)
    place = folder / "llm" if (is_vila := "llm_cfg" in raw) else folder
    text = read_config(place)
    known = AutoConfig.for_model("llama" if text["model_type"] == "llama" else "qwen2")
    tokenizer: Any = AutoTokenizer.from_pretrained(place, config=known)
    token = tokenizer.convert_ids_to_tokens(text["vocab_size"] - 1)
    token = token or "<video>"  # the embedding has a row without a token
    tokenizer.add_tokens([AddedToken(token, special=True)])
    [newline] = tokenizer("\n", add_special_tokens=False).input_ids
    video = tokenizer.convert_tokens_to_ids(token)
    model = load_published(folder, newline, video, dtype=dtype, device_map=device_map)
    with suppress(OSError):  # not every checkpoint has one
        model.generation_config = GenerationConfig.from_pretrained(place)
    is_flash = model.config.clip_frames > 1
    side = model.config.vision_config.image_size // (1 + is_flash)
    form: dict[str, Any] = {
        "num_frames": raw.get("num_video_frames", 64), "size": {"height": side, "width": side},
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "rounds": is_vila,
    }  # fmt: skip
    frames = ClipProcessor(size=form["size"]) if is_flash else FrameProcessor(**form)
    if tokenizer.chat_template is None:
        raise SoonerError(f"the tokenizer of '{name}' has no chat template; {WAY_OUT}")
    values = token if is_vila else f"{token}\n", LLAMA_3 if known.model_type == "llama" else ""
    values = (f"{token} ", QWEN) if is_flash else values
    template = f"{{%- set video, system = {values!r} -%}}{JOINED}{tokenizer.chat_template}"
    times = is_flash or raw.get("add_time_instruction", False)
    processor = LlavaVideoProcessor(tokenizer, frames, template, model.config, times)
    return model if device_map else model.to(device), processor
