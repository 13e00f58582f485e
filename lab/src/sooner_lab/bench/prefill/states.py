"""Made-up states of one attention layer, with the structure that video gives to attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sooner.sparse.attention import States
from sooner.sparse.modality import PromptLayout

WORDS = 32
"""Words before and behind the video."""
CLASS, LINE = 3.0, 2.5
"""Scores of the own class and of the phase's class, in nats, above those with which one class
weighs as much as all others together."""


def video_layout(tokens: int, frame: int, device: torch.device | str = "cpu") -> PromptLayout:
    """A prompt of `tokens`: words, whole frames as far as they fit, words."""
    video = (tokens - 2 * WORDS) // frame * frame
    spans = (("text", WORDS), ("video", video), ("text", tokens - video - WORDS))
    return PromptLayout.spans(*spans, frame=frame).to(device)


def grid_states(
    layout: PromptLayout,
    frame: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> States:
    """Heads that look at the same place of every frame, and at one place of all frames.

    Queries and keys share a direction with their class modulo `frame`, and keys of one class have
    another direction that all queries look along; the rest is noise.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens, group = len(layout), heads // kv_heads

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    places = torch.arange(tokens) % frame
    classes = torch.nn.functional.normalize(noise(kv_heads, frame, head_dim), dim=-1)
    line = torch.nn.functional.normalize(noise(kv_heads, 1, head_dim), dim=-1)
    scale = head_dim**-0.5
    unit = head_dim**0.5  # undoes the scale
    equal = math.log(frame)
    class_keys = classes[:, places] * ((CLASS + equal) * unit)  # [kv_heads, tokens, head_dim]
    phase = (places == frame // 3).float()[None, :, None]
    keys = class_keys + phase * line * ((LINE + equal) * unit) + noise(kv_heads, tokens, head_dim)
    aim = classes[:, places] + line
    queries = aim.repeat_interleave(group, 0) + 0.05 * noise(heads, tokens, head_dim)
    values = noise(kv_heads, tokens, head_dim)
    made = [part.to(device, dtype) for part in (queries, keys, values)]
    return States(made[0], made[1], made[2], scale)
