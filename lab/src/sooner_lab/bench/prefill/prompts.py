"""Prompts of a wanted length: many frames of the miniature's world, as the model's processor
takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from sooner.engine.interface import Prompt
from sooner.errors import SoonerError
from sooner.models import Adapter
from sooner.tasks.frames import Frames
from sooner.tasks.loading import Loaded
from sooner.tasks.prompting import GENERAL_PROMPT, build_inputs
from sooner.tasks.video import VideoInfo

from ...worlds.video import world
from .text import TextTask

TRIAL = 8
"""Frames of the prompt from which a frame's tokens are counted."""
FPS = 2.0


def embed(adapter: Adapter, sample: Any, processor: Any = None) -> Prompt:
    """Return a prompt as the model's decoder takes it, one row."""
    with torch.inference_mode():
        return adapter.embed_prompt(sample.inputs(processor, adapter.model))


def long_inputs(
    target: Loaded, tokens: int, seed: int, prompt: str | None = None
) -> dict[str, Any]:
    """A model's inputs with a video of as many frames as come nearest to `tokens` from below; of a
    model of text a prompt of `tokens`, in its middle a needle.

    Raises:
        SoonerError: `tokens` leaves no room for a frame.
    """
    if target.is_text:
        return TextTask(target.tokenizer).sample(tokens, 0.5, seed).inputs(model=target.model)
    question = prompt or GENERAL_PROMPT
    widths = [
        build_inputs(target.processor, clip_frames(count, seed), question, target.model)
        for count in (TRIAL, 2 * TRIAL)
    ]
    small, large = (inputs["input_ids"].shape[1] for inputs in widths)
    each = (large - small) / TRIAL
    count = int((tokens - (small - TRIAL * each)) // each)
    count -= count % 2  # some families see frames in pairs
    if count < 2:
        raise SoonerError(f"a prompt of {tokens} tokens has no room for two frames of {each:.0f}")
    return build_inputs(target.processor, clip_frames(count, seed), question, target.model)


def clip_frames(count: int, seed: int, scenes: int = 8) -> Frames:
    """`count` even frames of a clip of `scenes` scenes."""
    clip = world.sample_clip(np.random.default_rng([seed, count]), min(scenes, max(count // 2, 1)))
    indices = world.sample_indices(clip.total_frames, count)
    pixels = world.render(clip, indices)
    side = pixels.shape[1]
    info = VideoInfo(Path("rendered"), count, FPS, count / FPS, side, side)
    return Frames(pixels, list(range(count)), info)
