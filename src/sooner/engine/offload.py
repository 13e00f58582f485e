"""Keys and values in host memory ("KV offload"): a device has those of two layers at a time.

Attention reads a window, memory of the device that a layer shares with every second one. Committed
slots are copied there while the layer before is at work, as by transformers' offloaded caches; only
the slots of the block are copied back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from .cache import SlotCache, SlotLayer, kv_shapes
from .runner import ModelRunner


class OffloadedLayer(SlotLayer):
    """Holds keys and values of one layer in host memory; those of `SlotLayer` are its window.

    Attributes:
        host: keys and values, `[slots, max_rows, kv_heads, head_dim]`: a range of slots lies in one
            piece. Pinned for a GPU.
        stream: that copies to the window beside other layers; `None` without a GPU.
    """

    host: tuple[Tensor, ...] = ()
    stream: torch.cuda.Stream | None = None

    def _ranges(self, start: int, end: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields slots in host memory and in the window."""
        for host, window in zip(self.host, self.whole, strict=True):
            yield host[start:end], window.permute(2, 0, 1, 3)[start:end]

    def prefetch(self) -> None:
        """Begin to copy the committed slots to the window, once it has been read."""
        if (stream := self.stream) is not None:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            for host, window in self._ranges(0, self.owner.longest - self.dropped):
                window.copy_(host, non_blocking=stream is not None)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        owner, start, end = self.owner, 0, key_states.shape[2]
        if not owner.is_empty:
            owner.load(self)
            start, end = min(owner.lengths) - self.dropped, owner.longest - self.dropped + end
        states = super().update(key_states, value_states)
        for host, window in self._ranges(start, end):
            host.copy_(window, non_blocking=self.stream is not None)
        return states


class OffloadedCache(SlotCache):
    """A `SlotCache` in host memory, for rows that are admitted together.

    A round reads all of it once, however many tokens it verifies. What moves slots (a tree's path,
    rows that end) works on the host, which waits for the device.
    """

    is_offloaded = True

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers, capacity)
        self.slot_layers = [OffloadedLayer(self) for _ in range(layers)]
        self.layers = list(self.slot_layers)
        self._windows: dict[Any, tuple[Tensor, ...]] = {}
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._next: Any = None  # the layer whose slots are on their way to its window

    @torch.inference_mode(False)  # as in `cache._zeros`
    def allocate(self, layer: Any, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        rows, slots = max(self.max_rows, keys.shape[0]), self.capacity + 1
        sizes = [(rows, part.shape[1], part.shape[3]) for part in (keys, values)]
        like: Any = {"dtype": keys.dtype, "device": keys.device}
        key = (self.slot_layers.index(layer) % 2, *sizes, *like.values())
        if key not in self._windows:
            self._windows[key] = tuple(torch.zeros(slots, *size, **like) for size in sizes)
        if keys.is_cuda:
            stream = torch.cuda.Stream(keys.device)
            layer.stream = self._streams.setdefault(keys.device, stream)
            for window in self._windows[key]:
                window.record_stream(layer.stream)
        like = {"dtype": keys.dtype, "device": "cpu", "pin_memory": keys.is_cuda}
        layer.host = tuple(torch.empty(slots - layer.dropped, *size, **like) for size in sizes)
        return tuple(window.permute(1, 2, 0, 3) for window in self._windows[key])

    def load(self, layer: Any) -> None:
        """Have a layer's committed slots in its window, and begin to copy those of the next."""
        if self._next is not layer:
            layer.prefetch()
        if layer.stream is not None:
            torch.cuda.current_stream(layer.stream.device).wait_stream(layer.stream)
        place = self.slot_layers.index(layer) + 1
        after = [other for other in self.slot_layers[place : place + 1] if other.is_initialized]
        self._next = after[0] if after else None
        if self._next is not None:
            self._next.prefetch()

    def _slots(self, is_stacked: bool) -> Iterator[tuple[Tensor, int]]:
        """Yields slots in host memory, once the device has written them."""
        for device in self._streams:
            torch.cuda.synchronize(device)
        for layer in self.slot_layers:
            for host in layer.host:  # type: ignore[attr-defined]
                yield host.permute(1, 2, 0, 3)[None], layer.dropped


def offload(runner: ModelRunner) -> None:
    """Have a runner keep keys and values in host memory; before its prefill.

    Raises:
        UnsupportedError: layers of its model have more than keys and values of their own.
    """
    cache, adapter = runner.cache, runner.adapter
    if type(cache) is not SlotCache or getattr(adapter.text_config, "num_kv_shared_layers", None):
        raise UnsupportedError(
            "cache_implementation='offloaded' can't be honoured: some layers of "
            f"{type(adapter.model).__name__} have states or share their keys; leave it unset"
        )
    runner.cache = OffloadedCache(len(cache.slot_layers), cache.capacity)


def offloaded_bytes(adapter: Any, slots: int) -> tuple[int, int]:
    """Returns bytes of the windows of a row of `slots` slots, and of its host memory, which torch
    pins in powers of two."""
    shapes, size = kv_shapes(adapter.text_config)[: adapter.layers], slots * adapter.dtype.itemsize
    windows = {(place % 2, *shape) for place, shape in enumerate(shapes)}
    parts = [heads * width * size for heads, *widths in shapes for width in widths]
    host = sum(1 << (part - 1).bit_length() for part in parts)
    return sum(heads * (key + value) * size for _, heads, key, value in windows), host
