"""One video as inputs of target and draft: decoded frames and each processor's output, timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..errors import SoonerError
from ..models import adapt
from ..models.model_types import COMMON
from ..registry import choices
from .frames import Frames, Progress, Sampler, read
from .loading import ModelPair
from .long_video import MANY, FrameStream, chunked, encode, estimate
from .prompting import GENERAL_PROMPT, build_inputs, check_inputs
from .registry import method_name
from .settings import CaptionSettings
from .video import VideoInfo, probe

OnEstimate = Callable[[dict[str, Any]], None]
"""Called with what a long video will take, from `long_video.estimate`."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A request that models can take.

    Attributes:
        inputs: the target's inputs.
        draft_inputs: the draft's own; `None` without a draft or for one that reads text only.
        max_new_tokens: as asked for, or what room the prompt leaves in the model's positions.
        seconds: times of `video` (reading and decoding), `processor` and `draft_processor`.
        notes: what a user should know about this request.
    """

    inputs: dict[str, Any]
    draft_inputs: dict[str, Any] | None = None
    max_new_tokens: int
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Clip(Prompt):
    """A video that models can take.

    Attributes:
        frames: what they see.
        prompt: what they are asked.
        estimate: of a long video, whose inputs are features instead of pixels: what it takes.
        prefill_chunk: prompt tokens that are prefilled at once, see `CaptionSettings`.
    """

    frames: Frames
    prompt: str
    estimate: dict[str, Any] | None = None
    prefill_chunk: int | None = None


def prepare(
    path: Path | str, pair: ModelPair, settings: CaptionSettings,
    on_decode: Progress = lambda done, total: None,
    on_stage: Callable[[str], None] = lambda name: None,
    on_estimate: OnEstimate | None = None,
) -> Clip:  # fmt: skip
    """Decode, sample and process one video.

    Args:
        on_estimate: called before a video of many frames is decoded, whose frames are then encoded
            here, a few at a time; by default the model gets all pixels together.

    Raises:
        SoonerError: the model takes no videos, the file is no usable one, or its prompt does not
            fit the model, or memory.
    """
    seconds: dict[str, float] = {}
    prompt = settings.prompt or pair.prompt or GENERAL_PROMPT
    target, method = pair.target, choices()[method_name(settings, pair)]
    if (sampling := getattr(target.processor, "video_processor", None)) is None:
        raise SoonerError(
            f"{type(target.processor).__name__} of model '{target.name}' takes pictures, but no "
            f"videos; name a model that does, such as of type {', '.join(COMMON)}"
        )
    draft = pair.draft if pair.draft is not None and not pair.draft.is_text else None
    is_seen = method.draft_model == "pixels"
    viewers = [target, draft] if draft is not None and is_seen else [target]

    def begin(info: VideoInfo, indices: list[int]) -> list[FrameStream]:
        return [FrameStream(viewer, info, indices, prompt) for viewer in viewers]

    with timed(seconds, "video"):
        info = probe(path)
        sampler = Sampler(sampling, settings.frames, settings.fps)
        streams = begin(info, indices := sampler(info))
    takes, inputs = None, list[dict[str, Any]]()
    if on_estimate and len(indices) > MANY and all(stream.takes_batches for stream in streams):
        settings = chunked(settings, streams[0].words["input_ids"].shape[1])
        on_estimate(takes := estimate(streams, settings))
        on_stage("encode")
        with timed(seconds, "processor"):  # and decoding, and vision
            inputs, frames = encode(begin, info, sampler, on_decode)
    else:
        with timed(seconds, "video"):
            frames = read(info, sampler, on_decode)
        on_stage("process")
        for viewer, name in zip(viewers, ("processor", "draft_processor"), strict=False):
            with timed(seconds, name):
                inputs.append(build_inputs(viewer.processor, frames, prompt, viewer.model))
    count = len(frames.indices)
    rooms = [check_inputs(v.model, part, count) for v, part in zip(viewers, inputs, strict=True)]
    return Clip(
        frames=frames, prompt=prompt, inputs=inputs[0], draft_inputs=(*inputs, None)[1],
        max_new_tokens=min(settings.max_new_tokens, rooms[0]), seconds=seconds, estimate=takes,
        prefill_chunk=settings.prefill_chunk, notes=_notes(frames.info, settings, count, rooms[0]),
    )  # fmt: skip


def visible_patches(
    indices: Sequence[Sequence[int]] | None, clip: Clip, pair: ModelPair
) -> list[list[bool]] | None:
    """Returns, for each frame, which of its visual tokens a draft was shown.

    Args:
        indices: of each row, indices among its visual tokens; `None` where the draft saw all.

    Returns:
        Frame by frame, in the order of the tokens; frames that the model merges into a group have
        the same ones. `None` where nothing was pruned.
    """
    adapter = adapt(pair.target.model)
    seen = adapter.visual_tokens(clip.inputs)[0]
    frames = adapter.packed_frames(clip.inputs)[0].to(seen.device)[seen]  # [visual]
    if not indices or len(set(indices[0])) == len(frames):
        return None
    visible = torch.zeros_like(frames, dtype=torch.bool)
    visible[list(indices[0])] = True
    count = len(clip.frames.pixels)
    group = getattr(adapter.config, "clip_frames", 1)
    size = max(-(-count // max(int(frames.max()) + 1, 1)), group)  # frames of a group
    return [visible[frames == frame // size].tolist() for frame in range(count)]


def _notes(info: VideoInfo, settings: CaptionSettings, sampled: int, room: int) -> list[str]:
    notes = [info.damage] if info.damage else []
    if settings.frames is not None and sampled < settings.frames:
        notes.append(f"{settings.frames} frames were asked for, {sampled} are there")
    return notes + room_notes(room, settings)


def room_notes(room: int, settings: CaptionSettings) -> list[str]:
    """Returns a note where a prompt leaves less room than is asked for."""
    is_short = room < settings.max_new_tokens
    return [f"the model's positions leave room for {room} new tokens"] if is_short else []


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Adds the seconds of a block under a name."""
    start = time.perf_counter()
    yield
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
