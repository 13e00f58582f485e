"""One dense prefill, whose attention layers are overheard one after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from ...engine.interface import Prompt
from ...errors import UnsupportedError
from ...models import Adapter
from ...models.hooks import AttentionCall, AttentionHooks
from ..attention import States

OnLayer = Callable[[int, States], None]
"""Told `(layer, its rotated states)` of one row, without padding."""


@torch.inference_mode()
def capture(adapter: Adapter, prompt: Prompt, on_layer: OnLayer, row: int = 0) -> None:
    """Run a prompt through the language decoder and hand over each layer's states in passing.

    Attention stays dense, no cache is filled, and no more than one layer's states are alive. The
    hooks are gone afterwards, whatever happens.

    Args:
        adapter: of any family.
        prompt: embedded; its other rows are left alone.
        on_layer: called in the order of the layers, before the next one runs.

    Raises:
        UnsupportedError: the model's attention can't be overheard.
    """
    length = prompt.lengths[row]
    extras = prompt.extras
    if extras and (prompt.rows > 1 or length < prompt.width):
        raise UnsupportedError("a prompt with further decoder arguments is captured alone; one row")
    config = adapter.text_config
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads

    def hand_over(number: int, module: nn.Module, call: AttentionCall | None, _: Any) -> None:
        if call is None:
            raise UnsupportedError(
                f"{type(module).__name__} called no attention that can be overheard; load the "
                "model with attn_implementation='sdpa'"
            )
        step = call.keys.shape[1] // kv_heads  # keys that were repeated for their heads, taken once
        keys, values = call.keys[0, ::step], call.values[0, ::step]
        on_layer(number, States(call.queries[0], keys, values, call.scale))

    with AttentionHooks() as hooks:
        for number, layer in enumerate(adapter.decoder.layers):
            hooks.around(layer.self_attn, partial(hand_over, number))
        adapter.decoder(
            inputs_embeds=prompt.embeds[row : row + 1, :length],
            position_ids=prompt.positions[..., row : row + 1, :length],
            attention_mask=None,
            use_cache=False,
            **extras,
        )
