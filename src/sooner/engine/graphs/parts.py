"""Parts of a draft that is no model of its own (a head, a block drafter), as graphs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from .recorder import GraphRecorder, Replays, power_of_two
from .store import release

MAX_PARTS = 128
"""Parts that are captured for one drafter; others are launched as they are."""

Function = Callable[..., tuple[Tensor, ...]]


PartRunner = Any
"""Runs a drafter (`methods.sized_draft.DraftRunner`)."""


class PartGraphs:
    """Holds graphs of functions of tensors, by bucket of rows.

    Args:
        recorder: of the device.
        key: under which they are stored when a run ends, see `store.key_of`; `None`: they end with
            it.
    """

    def __init__(self, recorder: GraphRecorder, key: Hashable) -> None:
        self.replays, self.key = Replays(recorder), key
        self._parts: dict[Hashable, _Part] = {}

    @property
    def nbytes(self) -> int:
        """Returns what inputs and results take; graphs lie in the pool of the target's."""
        return sum(
            tensor.nbytes
            for part in self._parts.values()
            for tensor in (*part.inputs, *part.results)
        )

    def release(self, runner: PartRunner) -> None:
        """Let other runs have a runner whose run has ended, and its graphs."""
        if self.key is not None:
            runner.adapter = None  # graphs of a drafter keep no target alive
            release(self.key, runner, self)

    def run(
        self,
        runner: PartRunner,
        key: Hashable,
        function: Function,
        inputs: Sequence[Tensor],
        is_ragged: bool = False,
    ) -> tuple[Tensor, ...]:
        """`function(*inputs)`, whose results are gone with the next call of this key.

        Args:
            runner: whose rows the inputs are of.
            key: tells functions apart that do not launch the same on inputs of the same shapes.
            function: of padded inputs; it reads nothing on the host and changes nothing there.
            inputs: `[rows, ...]`.
            is_ragged: the inputs say how many of their `[rows, entries, ...]` are real, so that
                entries have buckets, too.
        """
        if not self.replays.keeps(runner.buffers):
            self._parts.clear()
        count = len(inputs[0])
        rows = min(power_of_two(count), runner.cache.row_capacity)
        shapes = [[rows, *tensor.shape[1:]] for tensor in inputs]
        for shape in shapes:
            shape[1:2] = [power_of_two(size) if is_ragged else size for size in shape[1:2]]
        key = (key, *map(tuple, shapes))
        is_new = key not in self._parts
        if self.replays.failure is not None or (is_new and len(self._parts) >= MAX_PARTS):
            return function(*inputs)
        if is_new:
            self._parts[key] = _Part(inputs, shapes)
        part = self._parts[key]
        part.fill(inputs)

        def run() -> None:
            with runner.using(rows):
                part.run(function)

        self.replays.run(key, run, part.inputs)
        return tuple(tensor[:count] for tensor in part.results)


class _Part:
    """The inputs of one key, and where its results are left."""

    def __init__(self, inputs: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> None:
        with torch.inference_mode(False):  # zeros: what is padding must be numbers, too
            self.inputs = [
                tensor.new_zeros(shape) for tensor, shape in zip(inputs, shapes, strict=True)
            ]
        self.results: tuple[Tensor, ...] = ()

    def fill(self, inputs: Sequence[Tensor]) -> None:
        for static, source in zip(self.inputs, inputs, strict=True):
            static[tuple(map(slice, source.shape))].copy_(source)

    def run(self, function: Function) -> None:
        results = function(*self.inputs)
        if not self.results:
            with torch.inference_mode(False):
                self.results = tuple(torch.empty_like(source) for source in results)
        for static, source in zip(self.results, results, strict=True):
            static.copy_(source)
