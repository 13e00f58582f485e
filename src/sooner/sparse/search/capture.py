"""One dense prefill, whose attention layers are overheard one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...decoding.interface import Prompt
from ...errors import UnsupportedError
from ...models import Adapter
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
    with overheard(adapter, on_layer):
        adapter.decoder(
            inputs_embeds=prompt.embeds[row : row + 1, :length],
            position_ids=prompt.positions[..., row : row + 1, :length],
            attention_mask=None,
            use_cache=False,
            **extras,
        )


@contextmanager
def overheard(adapter: Adapter, on_layer: OnLayer) -> Iterator[None]:
    """Hooks on every attention layer of the decoder, for this thread alone."""
    listener = _Listener(adapter, on_layer)
    handles: list[Any] = []
    try:
        for number, layer in enumerate(adapter.decoder.layers):
            attention = layer.self_attn
            leave = partial(listener.leave, number)
            handles += [
                attention.register_forward_pre_hook(listener.enter),
                attention.register_forward_hook(leave, always_call=True),
            ]
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Listener:
    """Listens inside one attention layer at a time."""

    def __init__(self, adapter: Adapter, on_layer: OnLayer) -> None:
        config = adapter.text_config
        self.kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self.on_layer = on_layer
        self.owner = threading.get_ident()
        self.ear: _Ear | None = None

    def enter(self, module: nn.Module, args: tuple) -> None:
        if threading.get_ident() == self.owner:
            self.ear = _Ear()
            self.ear.__enter__()

    def leave(self, number: int, module: nn.Module, args: tuple, output: Any) -> None:
        if threading.get_ident() != self.owner or self.ear is None:
            return
        ear, self.ear = self.ear, None
        ear.__exit__(None, None, None)
        if output is None:
            return  # the layer failed, and its error is on its way
        if ear.heard is None:
            raise UnsupportedError(
                f"{type(module).__name__} called no attention that can be overheard; load the "
                "model with attn_implementation='sdpa'"
            )
        self.on_layer(number, self._states(*ear.heard))

    def _states(self, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> States:
        # Keys that were repeated for their query heads are taken once.
        step = keys.shape[1] // self.kv_heads
        return States(queries[0], keys[0, ::step], values[0, ::step], scale)


class _Ear(TorchFunctionMode):
    """Hears what scaled dot product attention is handed in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: tuple[Tensor, Tensor, Tensor, float] | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            queries, keys, values = args[:3]
            scale = kwargs.get("scale")
            factor = queries.shape[-1] ** -0.5 if scale is None else scale
            self.heard = queries, keys, values, factor
        return func(*args, **kwargs)
