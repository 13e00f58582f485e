"""Videos of hours: frames are decoded, processed and encoded a few at a time, after an estimate of
what all of it takes."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import psutil
import torch
from transformers.image_utils import SizeDict
from transformers.video_processing_utils import BaseVideoProcessor

from ..engine.memory import free_bytes, gpus_of, vision
from ..engine.offload import offloaded_bytes
from ..errors import MemoryRanOutError
from ..models import adapt
from .frames import Choose, Frames, Progress, read
from .loading import Loaded
from .prompting import check_inputs, measure, on_device, process, visual_places
from .settings import CaptionSettings
from .video import VideoInfo

MANY = 2 * vision.FRAMES
"""Frames above which a video is encoded in batches."""

CHUNK = 2048
"""Prompt tokens that are prefilled at once."""

TIMED = 32
"""Frames of a file that are decoded to learn how long that takes."""


class FrameStream:
    """Encodes a video for one model, a batch of frames at a time.

    Args:
        loaded: the model.
        info, indices, prompt: see `prompting.process`.

    Raises:
        SoonerError: the prompt does not fit the model's positions, as far as its processor tells.
    """

    def __init__(self, loaded: Loaded, info: VideoInfo, indices: list[int], prompt: str) -> None:
        self.model, self.info, self.indices, self.prompt = loaded.model, info, indices, prompt
        shapes = measure(loaded.processor, info, indices, prompt)
        self.words = {name: part for name, part in shapes.items() if not _is_blank(part)}
        self.pixels = {name: part for name, part in shapes.items() if _is_blank(part)}
        if not shapes:
            return
        check_inputs(self.model, self.words, len(indices))
        self.visual = int(visual_places(self.model, self.words).sum())
        self.batches = vision.VisionBatches(adapt(self.model), self.visual)
        self._processor = _sized(loaded.processor, self.words.get("video_grid_thw"))

    @property
    def takes_batches(self) -> bool:
        """Whether frames can be encoded in batches, here."""
        is_here = self.pixels and not _is_blank(self.model.get_input_embeddings().weight)
        return bool(is_here) and vision.takes_batches(adapt(self.model))

    def process(self, pixels: np.ndarray, start: int = 0) -> dict[str, Any]:
        """Returns the model's pixels of `[frames, height, width, 3]`, numbered from `start`."""
        indices = self.indices[start : start + len(pixels)]
        made = process(self._processor, torch.from_numpy(pixels), self.info, indices, self.prompt)
        names = self.pixels.keys() | {"video_grid_thw"}
        return on_device({name: made[name] for name in names & made.keys()}, self.model)

    def inputs(self) -> dict[str, Any]:
        """Returns the model's inputs, features in the place of pixels."""
        return {**on_device(self.words, self.model), vision.ENCODED: self.batches.outputs()}


def _is_blank(part: Any) -> bool:
    return bool(getattr(part, "is_meta", False))


def _sized(processor: Any, grid: torch.Tensor | None) -> Any:
    """Returns a processor that resizes frames to the size that they have in the whole video, which
    in some families depends on how many there are: `grid` counts its patches, `[1, 3]`."""
    if grid is None:
        return processor
    processor = copy.copy(processor)
    video = processor.video_processor = copy.copy(processor.video_processor)
    height, width = (int(count) * video.patch_size for count in grid[0, 1:])
    size = SizeDict(height=height, width=width)
    video.resize = lambda videos, resample=None, **_: BaseVideoProcessor.resize(
        video, videos, size, resample=resample
    )
    return processor


def chunked(settings: CaptionSettings, tokens: int) -> CaptionSettings:
    """Returns settings that prefill a long prompt in chunks, unless they say how."""
    if settings.prefill_chunk is not None or tokens <= CHUNK:
        return settings
    return replace(settings, prefill_chunk=CHUNK)


def free_memory(model: Any) -> int:
    """Returns bytes that are free where a model lies: on its GPUs, or of the machine."""
    gpus = gpus_of(model)
    return sum(free_bytes(gpu, 1.0) for gpu in gpus) or int(psutil.virtual_memory().available)


def estimate(streams: list[FrameStream], settings: CaptionSettings) -> dict[str, Any]:
    """Returns what a video will take, ready for JSON; short pieces of all parts are timed.

    Args:
        streams: of the target, and of a draft that sees.

    Raises:
        MemoryRanOutError: more than there is; says what, and how many frames fit.
    """
    target, memory, times = streams[0], dict[str, int](), {"vision": 0.0, "prefill": 0.0}
    info, frames, last = target.info, len(target.indices), min(TIMED, target.info.frames) - 1
    began = time.perf_counter()
    pixels = read(info, lambda _: [last - 1, last]).pixels
    decoding = (time.perf_counter() - began) * (target.indices[-1] + 1) / (last + 1)
    for stream in streams:
        adapter, tokens = adapt(stream.model), stream.words["input_ids"].shape[1]
        encoding = partial(stream.batches.encode, stream.process(pixels))
        times["vision"] += vision.seconds_of(encoding, adapter.device) * frames / len(pixels)
        times["prefill"] += vision.prefill_seconds(adapter, tokens)
        values = max(part.numel() for part in stream.pixels.values()) * vision.FRAMES // frames
        parts = vision.memory_of(
            adapter, tokens, stream.visual, settings.max_new_tokens, values,
            settings.prefill_chunk, settings.prefill is not None,
        )  # fmt: skip
        if adapter.device == target.model.device:  # of whose memory there is a limit
            memory = {name: memory.get(name, 0) + size for name, size in parts.items()}
    memory["vision"] += 2 * vision.FRAMES * pixels[0].nbytes
    adapter, tokens = adapt(target.model), target.words["input_ids"].shape[1]
    slots, is_gpu = tokens + settings.max_new_tokens, bool(gpus_of(target.model))
    windows, host = offloaded_bytes(adapter, slots)
    host_free = int(psutil.virtual_memory().available) if is_gpu else host
    saved = adapter.slot_bytes * slots * is_gpu - windows  # by offloading; less than 0 on a CPU
    memory["cache"] -= saved * settings.kv_offload
    free, needed = free_memory(target.model), sum(memory.values()) - memory["weights"]
    parts = {**memory, "needed": needed, "free": free}
    parts |= {"host": host, "host free": host_free} if settings.kv_offload else {}
    gib = {name: size / 2**30 for name, size in parts.items()}
    is_full = settings.kv_offload and host > host_free
    if needed > free or is_full:
        growing = memory["cache"] + memory["embeddings"]  # in proportion to frames
        fit = max(free - needed + growing, 0) * frames // growing // 2 * 2
        fit = min(fit, frames >> ((host - 1) // host_free).bit_length()) if is_full else fit
        ways = [f"--frames {fit} fits"] if fit else []
        is_way = not settings.kv_offload and needed - saved <= free and host <= host_free
        ways += ["--kv-offload fits"] if is_way else []
        ways += ["--dtype bfloat16 takes half"] if target.model.dtype == torch.float32 else []
        sizes = ", ".join(f"{name} {size:.2f}" for name, size in gib.items())
        raise MemoryRanOutError(
            f"{frames} frames make a prompt of {tokens} tokens, which takes more than there is, in "
            f"GiB: {sizes}; {' or '.join(ways) or 'use a smaller model'}"
        )
    return {
        "frames": frames, "visual_tokens": target.visual, "prompt_tokens": tokens,
        "cache_bytes": memory["cache"], "gib": gib, "seconds": {"decoding": decoding, **times},
    }  # fmt: skip


def encode(
    begin: Callable[[VideoInfo, list[int]], list[FrameStream]], info: VideoInfo, choose: Choose,
    progress: Progress,
) -> tuple[list[dict[str, Any]], Frames]:  # fmt: skip
    """Decode the frames that `choose` picks, and encode them for each model.

    Args:
        begin: returns new streams; called once more for a file that turns out to be shorter.
        progress: called with `(frames encoded, frames)`.

    Returns:
        Inputs of each model, and the frames, whose pixels are gone.
    """
    streams: list[FrameStream] = []

    def consume(info: VideoInfo, indices: list[int], frames: Iterator[np.ndarray]) -> np.ndarray:
        streams[:], done = begin(info, indices), 0
        while batch := list(islice(frames, vision.FRAMES)):
            for stream in streams:
                stream.batches.add(stream.process(np.stack(batch), done))
            done += len(batch)
            progress(done, len(indices))
        return np.empty((0, info.height, info.width, 3), np.uint8)

    frames = read(info, choose, consume=consume)
    return [stream.inputs() for stream in streams], frames
