"""What a piece of code allocates, tensor by tensor, without a clock or a process in between."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of every storage that an operation makes, until it is freed.

    What a fused kernel keeps to itself is not seen.

    Attributes:
        live: bytes that are held now.
        peak: most that were held at once.
        largest: bytes of the largest storage of all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = self.largest = 0
        self.known = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor):  # weights, and others that were there before
                self.known.setdefault(value.untyped_storage(), True)
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, torch.Tensor):
                self._see(value.untyped_storage())
        return out

    def _see(self, storage: Any) -> None:
        if storage in self.known:
            return
        self.known[storage] = True
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        self.largest = max(self.largest, size)
        weakref.finalize(storage, self._free, size)

    def _free(self, size: int) -> None:
        self.live -= size
