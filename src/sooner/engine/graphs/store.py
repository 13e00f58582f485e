"""What outlives a run: free memory at fixed addresses, and the graphs that read it.

Each model and each trained drafter has a store of its own, as an attribute, and so have the pages
of an engine, whose rows lie in them. A run takes memory out of a store, or makes some; another that
runs beside it finds none there and makes its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from ...models.hooks import ForwardHooks
from ..attention.context import CHUNKED, PREFIX
from ..cache import SlotCache
from ..loop import RowState
from ..runner import GRAPHS, ModelRunner

MAX_IDLE, MAX_BYTES = 4, 2 << 30
"""Idle memory of a model: so many caches, of so many bytes with their graphs."""

CAPACITY = 256
"""Slots of a row in the smallest cache."""

LORA = ("scaling", "_active_adapter", "merged_adapters")
"""What PEFT switches in a layer, beside flags."""

_LOCK = threading.Lock()


@dataclass(eq=False)
class StaticMemory:
    """A runner whose run has ended, and graphs that read and write its tensors where they are.

    Attributes:
        key: what the graphs depend on; see `key_of`.
        runner: a `ModelRunner`, or the `DraftRunner` of a trained drafter.
        graphs: `StepRecords` of a target, `ForwardGraphs` of a draft, `PartGraphs` of a drafter.
        state: of a target's rows.
    """

    key: Hashable
    runner: Any
    graphs: Any
    state: RowState | None = None

    @property
    def cache(self) -> SlotCache:
        """Where the keys and values of the runner's rows were."""
        cache: SlotCache = self.runner.cache
        return cache

    @property
    def nbytes(self) -> int:
        """What it takes beside an engine's pages."""
        slots = 0 if self.cache.page_table is not None else self.cache.nbytes()
        return slots + int(self.graphs.nbytes)

    def receive(self, runner: ModelRunner, state: RowState | None = None) -> None:
        """Let a run that is about to take its first step take it here, as graphs do."""
        runner.adapter = self.runner.adapter
        runner.move_to(self.runner.delta)
        if state is not None and self.state is not None:
            state.move_to(self.state)


class GraphStore:
    """Memory that no run uses, the latest last; a copy of a model begins with an empty one."""

    def __init__(self) -> None:
        self._idle: list[StaticMemory] = []

    @classmethod
    def of(cls, runner: Any) -> GraphStore:
        """Returns the store of a runner's model or drafter, or of the pages of its rows."""
        owner = _trained(runner)
        if owner is None:
            owner = getattr(runner.cache, "memory", runner.adapter.model)
        with _LOCK:
            store: GraphStore = vars(owner).setdefault(GRAPHS, cls())
            return store

    def take(self, key: Hashable, fits: Callable[[SlotCache], bool]) -> StaticMemory | None:
        """The shortest of a key whose cache fits, the latest of those; from now on the caller's."""
        with _LOCK:
            fitting = [
                memory
                for memory in reversed(self._idle)
                if memory.key == key and fits(memory.cache)
            ]
            memory = min(fitting, key=lambda entry: entry.cache.capacity, default=None)
            if memory is not None:
                self._idle.remove(memory)
            return memory

    def give(self, memory: StaticMemory) -> None:
        """Keep memory that a run has used; the oldest gives way to what is too much."""
        with _LOCK:
            self._idle.append(memory)
            while (
                len(self._idle) > MAX_IDLE or sum(entry.nbytes for entry in self._idle) > MAX_BYTES
            ):
                self._idle.pop(0)

    def clear(self) -> None:
        """Let go of everything, such as when memory ran out."""
        with _LOCK:
            self._idle.clear()

    def __deepcopy__(self, memo: Any) -> GraphStore:
        return GraphStore()

    def __reduce__(self) -> Any:
        return GraphStore, ()


def capacity_for(slots: int) -> int:
    """Slots of the rows of a cache that has to have `slots`: a power of two, or 1.5 times one.

    So runs of similar lengths share graphs, and compiled forwards.
    """
    power = max(CAPACITY, 1 << (slots - 1).bit_length())
    return power * 3 // 4 if power > CAPACITY and slots <= power * 3 // 4 else power


def may_move(runner: ModelRunner) -> bool:
    """Whether a runner, before its prefill, may be given slots: nothing rearranges its own."""
    cache = runner.cache
    is_new = cache.pages is None and not any(layer.is_initialized for layer in cache.slot_layers)
    is_listened_to = runner.is_sparse or ForwardHooks.any_in(runner.adapter.decoder)
    return is_new and not is_listened_to


def open_memory(runner: ModelRunner, key: Hashable, rows: int) -> StaticMemory | None:
    """Gives a runner, before its prompts are prefilled, memory that graphs know, if some is idle.

    Args:
        key: of the graphs.
        rows: of the prompts.
    """
    cache = runner.cache
    cache.capacity = capacity_for(cache.capacity)
    memory = GraphStore.of(runner).take(key, lambda other: cache.can_take(other, rows))
    if memory is not None:
        cache.take(memory.cache, rows)
        memory.receive(runner)
    return memory


def release(key: Hashable, runner: Any, graphs: Any, state: RowState | None = None) -> None:
    """Let other runs have the memory of a runner that forwards no more, if they may: all of it, and
    if nothing else keeps it."""
    cache = runner.cache
    if (cache.pages is None or cache.page_table is not None) and cache.is_reusable:
        cache.set_lengths([])
        GraphStore.of(runner).give(StaticMemory(key, runner, graphs, state))


def key_of(runner: Any, owner: Hashable) -> Hashable:
    """What graphs of a model, or of a drafter trained for it, depend on beside their shapes.

    The weights where they are and as they are (PyTorch counts what is written to each), whatever
    is switched in a module (a LoRA, dropout), hooks, the functions that the config names, and the
    stream that the graphs are launched on.

    Args:
        owner: who records them.
    """
    adapter: Any = runner.adapter
    text, device = adapter.text_config, adapter.device
    parts: list[Any] = [
        owner, type(adapter), getattr(adapter, "tap_layers", ()),
        text._attn_implementation.removeprefix(PREFIX).removeprefix(CHUNKED),  # of runs beside it
        getattr(text, "_experts_implementation", None),
        # Some devices know no autocast.
        torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type),
        None if adapter.grid is None else id(adapter),
        torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None,
    ]  # fmt: skip
    trained = _trained(runner)
    decoder = adapter.decoder if trained is None else trained
    for root in (decoder, adapter.head, adapter.embedding):
        for module in root.modules() if isinstance(root, torch.nn.Module) else ():
            parts.append(_switches(module))
    return tuple(parts)


def _trained(runner: Any) -> Any:
    """The drafter of a `DraftRunner`; `None` for the runner of a model."""
    return getattr(runner, "drafter", None)


def _switches(module: Any) -> tuple[Any, ...]:
    attributes = vars(module)
    tensors = [*attributes["_parameters"].values(), *attributes["_buffers"].values()]
    return (
        *(
            (tensor.data_ptr(), tensor.shape, tensor.dtype, _version(tensor))
            for tensor in tensors if tensor is not None
        ),
        *attributes["_forward_hooks"], *attributes["_forward_pre_hooks"], "forward" in attributes,
        *(value for value in attributes.values() if type(value) in (bool, int, float, str)),
        *(repr(attributes[name]) for name in LORA if name in attributes),
    )  # fmt: skip


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)
