"""What makes one step of a method, to be watched; and HF's own step, to be compared with.

Each method joins `engine.STATIC` with a factory. Its step
is `step(rows, entries)`: forward over `entries` tokens of each row, verify, commit. The caller
turns gradients off: by `inference_mode`, or by `no_grad` where it is compiled, since dynamo can't
make views of inference tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache, StaticCache

from .operations import BytesOf

Step = Callable[[int, int], None]
"""One step over `rows` rows and blocks of `entries` tokens: `step(rows, entries)`."""

Build = Callable[[Any, int, int], Step]
"""Sets a step up behind a prompt: `(model, rows, tokens of the prompt) -> step`."""


@dataclass(frozen=True)
class StepFactory:
    """How one method's step is made.

    Attributes:
        method: its name.
        entries: tokens a row that a round forwards, the root included.
        build: sets a step up, with slots for some more rounds. Nothing is computed for the prompt:
            its keys and values are zeros.
        declared: bytes that operations of its own move (`operations.Operations`).
    """

    method: str
    entries: int
    build: Build
    declared: Mapping[str, BytesOf] = field(default_factory=dict)


ROOM = 512
"""Slots behind the prompt."""

LARGEST = 128
"""Entries of the largest block."""


def hf_dynamic(model: Any, rows: int, length: int) -> Step:
    """HF's step of `generate` with its default cache, which grows."""
    cache = DynamicCache(config=model.config)
    config = model.config.get_text_config()
    heads, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    shape = (rows, heads, length, width)
    for layer in range(config.num_hidden_layers):
        states = torch.zeros(shape, dtype=model.dtype, device=model.device)
        cache.update(states, states.clone(), layer)
    return _hf_step(model, rows, cache)


def hf_static(model: Any, rows: int, length: int) -> Step:
    """HF's step of `generate` with a static cache."""
    config = model.config.get_text_config()
    cache: Any = StaticCache(config=model.config, max_cache_len=length + ROOM)
    cache.early_initialization(
        rows,
        config.num_key_value_heads,
        config.hidden_size // config.num_attention_heads,
        model.dtype,
        model.device,
    )
    for layer in cache.layers:
        layer.cumulative_length.fill_(length)
    return _hf_step(model, rows, cache)


def _hf_step(model: Any, max_rows: int, cache: Any) -> Step:
    """Forward and greedy choice as `generate` has them, without its criteria."""

    tokens = torch.zeros(max_rows, LARGEST, dtype=torch.long, device=model.device)

    def step(rows: int, entries: int) -> None:
        output = model(input_ids=tokens[:rows, :entries], past_key_values=cache, use_cache=True)
        scores = output.logits.to(copy=True, dtype=torch.float32)  # [rows, entries, vocab]
        scores.argmax(-1)

    return step


HF = (StepFactory("hf-dynamic", 1, hf_dynamic), StepFactory("hf-static", 1, hf_static))
"""What users have without us."""
