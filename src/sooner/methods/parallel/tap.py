"""Listens to the target's prefill: states before the decoder and after layer L, nothing kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ...engine.cache import SlotCache, cache_of
from ...errors import UnsupportedError
from ...models.hooks import ForwardHooks

OnStates = Callable[[Tensor, Tensor], None]
"""Told `(states before the decoder, states after layer L)`, each `[rows, width, hidden]`."""


class PrefillTap(ForwardHooks):
    """Hooks on the decoder's first layer and on layer `depth`, for one forward.

    Layers are few lines of Python apart, so what `on_states` does on the host overlaps with what a
    GPU still has queued, and the target's remaining layers hide the worker that it sets going.

    Args:
        decoder: the target's decoder, with a list `layers`.
        depth: how many layers have run when the states are taken (L).
        on_states: called once, in the middle of the prefill.
    """

    def __init__(self, decoder: Any, depth: int, on_states: OnStates) -> None:
        super().__init__()
        self.on_states = on_states
        self.first: Tensor | None = None
        begin, end = decoder.layers[0], decoder.layers[depth - 1]
        self.before(begin, self._enter)
        self.after(end, self._leave)

    def _enter(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        if self.first is None:
            cache = cache_of(kwargs)
            if isinstance(cache, SlotCache):
                cache.require_whole("ranking visual tokens")
            self.first = args[0] if args else kwargs["hidden_states"]

    def _leave(self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        first, self.first = self.first, None
        if first is not None:
            self._check(first, output[0] if isinstance(output, tuple) else output)
            self.on_states(first, output[0] if isinstance(output, tuple) else output)
            self.remove()

    def _check(self, first: Tensor, last: Tensor) -> None:
        if first.shape[1] != last.shape[1]:
            raise UnsupportedError(
                f"ranking needs all {first.shape[1]} prompt tokens, but a prefill context left "
                f"{last.shape[1]} of them; rank after an earlier layer, or leave the context"
            )
