"""Parts of a draft that is no model of its own (a head, a block drafter), as graphs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from .recorder import Replays

MOST_PARTS = 128
"""Parts that are recorded for one draft; others are launched as they are."""

Function = Callable[..., tuple[Tensor, ...]]


class PartGraphs:
    """Functions of tensors, which read and write at the same addresses in every call.

    Args:
        records: of these parts alone.
    """

    def __init__(self, records: Replays) -> None:
        self.records = records
        self._parts: dict[Hashable, _Part] = {}

    def run(
        self, key: Hashable, function: Function, inputs: Sequence[Tensor], held: list[Tensor]
    ) -> tuple[Tensor, ...]:
        """`function(*inputs)`, whose results are gone with the next call of this key.

        Args:
            key: tells functions apart that do not launch the same on inputs of the same shapes.
            function: reads nothing on the host and changes nothing there.
            held: what it reads and writes beside its inputs and weights.
        """
        if not self.records.keeps(held):
            self._parts.clear()
        key = (key, *(one.shape for one in inputs))
        is_new = key not in self._parts
        if self.records.failure is not None or (is_new and len(self._parts) >= MOST_PARTS):
            return function(*inputs)
        if is_new:
            self._parts[key] = _Part(inputs)
        part = self._parts[key]
        part.fill(inputs)
        self.records.run(key, lambda: part.run(function), part.inputs)
        return part.results


class _Part:
    """The inputs of one key, and where its results are left."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        with torch.inference_mode(False):
            self.inputs = [torch.empty_like(one) for one in inputs]
        self.results: tuple[Tensor, ...] = ()

    def fill(self, inputs: Sequence[Tensor]) -> None:
        for kept, one in zip(self.inputs, inputs, strict=True):
            kept.copy_(one)

    def run(self, function: Function) -> None:
        made = function(*self.inputs)
        if not self.results:
            with torch.inference_mode(False):
                self.results = tuple(torch.empty_like(one) for one in made)
        for kept, one in zip(self.results, made, strict=True):
            kept.copy_(one)
