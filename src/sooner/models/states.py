"""A cache of layers that keep a state beside layers that keep slots; for chains.

A slot is taken back by a shorter length, a state is not. So the state behind every entry of a block
is kept until the block is committed, and each row goes on from the one behind its last kept entry:
nothing is computed twice, and a row's state is what one token at a time would have made of it. It
takes the memory of one state more for every entry of a block.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import DummyLayer, LinearAttentionCacheLayerMixin

from ..engine.cache import SlotCache
from ..errors import UnsupportedError
from .base import FULL, SLIDING, STATES

CONV, RECURRENT = "conv", "recurrent"


class StateLayer(LinearAttentionCacheLayerMixin):
    """What one convolutional or recurrent layer keeps, of each row.

    Its mixer asks transformers' `Cache` for states and hands it new ones, of a block's first entry
    or of all at once. It never writes to a state, since the past is recorded.

    Attributes:
        states: by kind, those behind 0, 1, ... entries that are not committed, each `[rows, ...]`:
            the last inputs of a convolution, `[rows, channels, kernel]`, or a recurrent state.
        offset: entries of the block under way that the mixer has been given.
        rows: those that a prefill is at, `[some]`; `None` are all.
        lent: a copy of the recurrent state that the mixer may write to, as Mamba's at one token.
    """

    is_compileable = False

    def __init__(self, owner: StateCache) -> None:
        super().__init__()
        self.record_past = True
        self._owner = weakref.ref(owner)  # as a layer of slots does
        self.states: dict[str, list[Tensor]] = {}
        self.offset = 0
        self.rows: Tensor | None = None
        self.lent: Tensor | None = None

    @property
    def owner(self) -> StateCache:
        owner = self._owner()
        assert owner is not None
        return owner

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: a state is what the mixer hands over."""

    def state(self, kind: str) -> Tensor | None:
        """Returns what the next entry goes on from, or `None` at a prompt's start."""
        if kind not in self.states or (self.owner.is_prefilling and self.owner.is_empty):
            return None
        if self.owner.is_prefilling:
            before = self.states[kind][0]
            return before if self.rows is None else before[self.rows.to(before.device)]
        return self.states[kind][self.owner.cursor + self.offset]

    def lend(self) -> Tensor | None:
        """Returns a copy of the recurrent state; `settle` takes it if the mixer returns none."""
        state = self.state(RECURRENT)
        self.lent = None if state is None else state.clone()
        return self.lent

    def settle(self) -> None:
        """The mixer's forward has ended."""
        if self.lent is not None:
            self.update_recurrent_state(self.lent)

    def update_conv_state(
        self,
        conv_states: Tensor,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Take inputs of a convolution, `[rows, channels, entries]`; those before them in front."""
        assert conv_kernel_size is not None
        before, entries = self.state(CONV), conv_states.shape[-1]
        if before is None:
            whole = pad(conv_states, (conv_kernel_size, 0))
        else:
            whole = torch.cat([before, conv_states], -1)  # [rows, channels, kernel + entries]
        if self.owner.is_prefilling:
            real = [entries] * len(whole)
            if self.rows is None:
                real = self.owner.real_entries(entries)
            ends = torch.tensor(real, device=whole.device)[:, None]
            line = (ends + torch.arange(conv_kernel_size, device=whole.device))[:, None]
            self._put(CONV, whole.gather(2, line.expand(-1, whole.shape[1], -1)))
        else:
            for entry in range(1, 1 + entries):
                self._append(CONV, whole[..., entry : entry + conv_kernel_size], entry)
        return whole

    def update_recurrent_state(
        self, recurrent_states: Tensor, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        """Take the state behind the entries that the mixer was given, `[rows, ...]`."""
        self.lent = None
        if self.owner.is_prefilling:
            self._put(RECURRENT, recurrent_states)
        else:
            self._append(RECURRENT, recurrent_states, 1)
        return recurrent_states

    def _put(self, kind: str, state: Tensor) -> None:
        """Commit a state of the rows that a prefill is at."""
        if self.rows is None:
            self.states[kind] = [state]
            return
        if kind not in self.states:
            prompt = self.owner.prompt
            assert prompt is not None
            self.states[kind] = [state.new_zeros(prompt.rows, *state.shape[1:])]
        self.states[kind][0][self.rows.to(state.device)] = state

    def _append(self, kind: str, state: Tensor, entry: int) -> None:
        """Keep the state behind an entry; what was behind it, or follows it, was another draft."""
        at = self.owner.cursor + self.offset + entry
        self.states[kind][at:] = [state]

    def commit(self, entries: Tensor) -> None:
        """Go on from the state behind so many entries of each row, `[rows]`."""
        for kind, history in self.states.items():
            current, count = history[0], entries.to(history[0].device)
            for number, state in enumerate(history[1:], 1):
                chosen = (count == number).view(-1, *[1] * (state.ndim - 1))
                current = torch.where(chosen, state, current)
            self.states[kind] = [current]

    def drop(self, entries: int) -> None:
        """Count so many entries as committed in every row."""
        for kind, history in self.states.items():
            self.states[kind] = history[entries:]

    def select_rows(self, rows: list[int]) -> None:
        for kind, history in self.states.items():
            self.states[kind] = [state[rows] for state in history]

    def merge(self, other: StateLayer) -> None:
        """Put the rows of another cache's layer, which have nothing uncommitted, behind these."""
        for kind, history in self.states.items():
            new = other.states[kind][0]
            self.states[kind] = [torch.cat([state, new.to(state.device)]) for state in history]

    def clear(self) -> None:
        self.states = {}


class StateCache(SlotCache):
    """Holds slots for the layers with attention and states for the others.

    Args:
        kinds: of the layers, as `layer_types` of a config names them.
        capacity: as of `SlotCache`.

    Attributes:
        cursor: uncommitted entries that the next one follows.
    """

    def __init__(self, kinds: Sequence[str], capacity: int) -> None:
        super().__init__(sum(kind in (FULL, SLIDING) for kind in kinds), capacity)
        slots: Iterator[Any] = iter(self.slot_layers)
        self.cursor = 0
        self.state_layers: list[StateLayer] = []
        self.layers = [next(slots) if kind in (FULL, SLIDING) else self._of(kind) for kind in kinds]

    def _of(self, kind: str) -> Any:
        if kind not in STATES:
            return DummyLayer()
        self.state_layers.append(StateLayer(self))
        return self.state_layers[-1]

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.state_layer(layer_idx).state(CONV)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.state_layer(layer_idx).lend()

    def state_layer(self, number: int) -> StateLayer:
        """Returns the state of the decoder's layer with this number."""
        layer = self.layers[number]
        assert isinstance(layer, StateLayer)
        return layer

    def real_entries(self, entries: int) -> list[int]:
        """Returns how many of a chunk's entries are words of each row's prompt, and no padding."""
        assert self.prompt is not None
        return [min(max(length - self.longest, 0), entries) for length in self.prompt.lengths]

    @property
    def takes_blocks(self) -> bool:
        return False

    def reserve(self, block: int) -> None:
        super().reserve(block)
        if self.cursor:
            for layer in self.state_layers:
                layer.drop(self.cursor)
            self.cursor = 0

    def shift(self, count: int) -> None:
        super().shift(count)
        self.cursor += count

    def commit_path(self, path: Tensor, entries: Tensor, is_chain: bool) -> None:
        if not is_chain:
            raise UnsupportedError(
                "a tree of drafts was decoded by a model whose layers keep a state, which takes "
                "chains alone; use PromptLookup or Speculative"
            )
        super().commit_path(path, entries, is_chain)
        for layer in self.state_layers:
            layer.commit(entries + self.cursor)
        self.cursor = 0

    def set_lengths(self, lengths: list[int]) -> None:
        super().set_lengths(lengths)
        if not lengths:
            for layer in self.state_layers:
                layer.clear()

    def select_rows(self, rows: list[int]) -> None:
        if rows != list(range(len(self.lengths))):
            for layer in self.state_layers:
                layer.select_rows(rows)
        super().select_rows(rows)

    def borrow(self, other: SlotCache, rows: int) -> None:
        """Nothing: a prompt's states are put behind those of other rows by `merge`."""

    def merge(self, other: SlotCache) -> None:
        assert isinstance(other, StateCache)
        for mine, other_layer in zip(self.state_layers, other.state_layers, strict=True):
            mine.merge(other_layer)
        super().merge(other)

    def nbytes(self) -> int:
        """Returns the bytes of slots and committed states of all rows and layers."""
        tensors = (history[0] for layer in self.state_layers for history in layer.states.values())
        return super().nbytes() + sum(state.nbytes for state in tensors)


def in_order(
    forward: Callable[..., Tensor], number: int, name: str, hidden_states: Tensor, **kwargs: Any
) -> Tensor:
    """A recurrent mixer's forward that leaves the state behind every entry in a `StateCache`.

    A block goes through it token by token, on the path by which `generate` decodes; a prompt at
    once, without the padding of its shorter rows, which would change their states.

    Args:
        forward: the mixer's forward; with any other cache it alone is called.
        number: of its layer.
        name: of its argument for the cache.
        hidden_states: `[rows, entries, hidden]`.
    """
    cache = kwargs.get(name)
    if not isinstance(cache, StateCache):
        return forward(hidden_states, **kwargs)
    layer, entries = cache.state_layer(number), hidden_states.shape[1]

    def run(states: Tensor) -> Tensor:
        output = forward(states, **kwargs)
        layer.settle()
        return output

    if not cache.is_prefilling:
        return torch.cat(list(_steps(layer, run, hidden_states)), 1)
    real = cache.real_entries(entries)
    if min(real) == entries:
        return run(hidden_states)
    outputs = torch.zeros_like(hidden_states)
    try:
        for count in sorted({*real} - {0}, key=real.index):
            layer.rows = torch.tensor([row for row, have in enumerate(real) if have == count])
            outputs[layer.rows, :count] = run(hidden_states[layer.rows, :count])
    finally:
        layer.rows = None
    return outputs


def _steps(layer: StateLayer, run: Callable[[Tensor], Tensor], states: Tensor) -> Iterator[Tensor]:
    try:
        for layer.offset in range(states.shape[1]):
            yield run(states[:, layer.offset, None])
    finally:
        layer.offset = 0
