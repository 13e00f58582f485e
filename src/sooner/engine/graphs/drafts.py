"""What a draft launches, as graphs: a model's forwards, and the parts of a trained drafter."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..attention.block import MAX_ENTRIES
from ..runner import Forward, ModelRunner
from .recorder import MAX_CELLS, GraphRecorder, Replays, compiled_for, entering, power_of_two
from .store import release

MAX_PARTS = 128
"""Shapes or parts that are captured for one draft; others are launched as they are."""

Function = Callable[..., tuple[Tensor, ...]]


class ForwardGraphs:
    """The forwards of a draft model, whose rows are padded, with their inputs and results by shape;
    see `ModelRunner.graphs`.

    Args:
        recorder: of the device; `None` only pads.
        compiled: arguments of `torch.compile`, which makes each shape's forward.

    Attributes:
        key: under which they are stored when a run ends (`store.key_of`); `None`: they end with it.
    """

    def __init__(
        self, recorder: GraphRecorder | None, compiled: Mapping[str, Any] | None = None
    ) -> None:
        self.replays, self.compiled = Replays(recorder), compiled
        self.key: Hashable = None
        self.inputs: dict[Hashable, _Inputs] = {}

    @property
    def nbytes(self) -> int:
        """Returns what results take; records lie in the pool of the target's."""
        return sum(tensor.nbytes for inputs in self.inputs.values() for tensor in inputs.results)

    def release(self, runner: ModelRunner) -> None:
        """Let other runs have these graphs and the memory of a runner that forwards no more."""
        key, self.key = self.key, None
        if key is not None:
            release(key, runner, self)

    def forward(
        self,
        runner: ModelRunner,
        tokens: Tensor,
        depths: Tensor | None,
        ancestors: Tensor | None,
        written: int,
    ) -> Forward | None:
        """As `ModelRunner` does it, whose result is gone with the next of this shape.

        `None` where it has to do it itself.
        """
        count, entries = tokens.shape
        rows = min(power_of_two(count), runner.cache.row_capacity)
        is_tree = ancestors is not None
        wide = entries if is_tree else power_of_two(entries)
        if self.replays.failure or not runner.takes_graphs:
            return None
        if wide > MAX_ENTRIES or rows * wide > MAX_CELLS:
            return None  # results of each shape stay, and the target's steps are no wider
        runner.cache.reserve(written + entries)
        runner.cache.lengths_on(tokens.device)
        if not self.replays.keeps(runner.buffers):
            self.inputs.clear()
        key = (rows, wide, written if is_tree else None)
        if key not in self.inputs:
            if len(self.inputs) >= MAX_PARTS:
                return None
            self.inputs[key] = _Inputs(tokens, rows, wide, written if is_tree else 0)
        inputs = self.inputs[key]
        inputs.fill(tokens, depths, ancestors, written)
        self.replays.run(key, lambda: inputs.forward(runner, self.compiled), inputs.tensors)
        logits, hidden = inputs.results
        return Forward(logits[:count, :entries], hidden[:count, :entries])


class _Inputs:
    """Inputs of one shape at their addresses, and where its results are left.

    Attributes:
        offset: uncommitted entries that a chain follows, a number that graphs read, `[]`.
        depths, ancestors: of a tree's level, copies.
        written: entries before a tree's level.
    """

    def __init__(self, tokens: Tensor, rows: int, entries: int, written: int) -> None:
        with torch.inference_mode(False):
            self.tokens = torch.zeros(rows, entries, dtype=torch.long, device=tokens.device)
            self.sizes = torch.zeros(rows, dtype=torch.long, device=tokens.device)
            self.offset = torch.zeros((), dtype=torch.long, device=tokens.device)
        self.depths: Tensor | None = None
        self.ancestors: Tensor | None = None
        self.written = written
        self.results: tuple[Tensor, ...] = ()
        self._real: tuple[int, ...] = ()
        self._level: tuple[Tensor | None, Tensor | None] = (None, None)  # that was copied last
        self._chain = 0  # what `offset` says
        self._compiled: Callable[..., Forward] | None = None

    @property
    def tensors(self) -> list[Tensor]:
        tensors = (self.tokens, self.sizes, self.offset, self.depths, self.ancestors)
        return [tensor for tensor in tensors if tensor is not None]

    def fill(
        self, tokens: Tensor, depths: Tensor | None, ancestors: Tensor | None, written: int
    ) -> None:
        """Take what is to be forwarded."""
        rows, entries = real = tokens.shape
        self.tokens[:rows, :entries].copy_(tokens)
        if real != self._real:
            self.sizes[:rows].fill_(self.written + entries)
            self.sizes[rows:].zero_()
            self._real = real
        if ancestors is None or depths is None:
            if written != self._chain:
                self.offset.fill_(written)
                self._chain = written
        elif self._level[0] is not depths or self._level[1] is not ancestors:
            if self.depths is None or self.ancestors is None:
                with torch.inference_mode(False):
                    self.depths = torch.empty_like(depths)
                    self.ancestors = torch.empty_like(ancestors)
            self.depths.copy_(depths)
            self.ancestors.copy_(ancestors)
            self._level = (depths, ancestors)

    def forward(self, runner: ModelRunner, compiled: Mapping[str, Any] | None) -> None:
        """Leave logits and states."""
        forward: Callable[..., Forward] = _forward
        if compiled is not None:
            if self._compiled is None:
                shape = (*self.tokens.shape, self.written, self.depths is not None)
                self._compiled = compiled_for(_forward, compiled, *shape, runner.cache.capacity)
            forward = self._compiled
        with runner.using(len(self.tokens)), entering(runner, compiled is not None):
            made = forward(
                runner, self.tokens, self.sizes, self.depths, self.ancestors, self.written,
                self.offset,
            )  # fmt: skip
        self.results = _leave(self.results, (made.logits, made.hidden))


def _forward(
    runner: ModelRunner, tokens: Tensor, sizes: Tensor, depths: Tensor | None,
    ancestors: Tensor | None, written: int, offset: Tensor,
) -> Forward:  # fmt: skip
    return runner.forward_sized(tokens, sizes, depths, ancestors, written, offset)


class PartGraphs:
    """Holds graphs of functions of tensors, by bucket of rows: the parts of a draft that is no
    model of its own (a head, a block drafter), whose runner is a `methods.sized_draft.DraftRunner`.

    Args:
        recorder: of the device.
        key: under which they are stored when a run ends (`store.key_of`); `None`: they end with it.
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

    def release(self, runner: Any) -> None:
        """Let other runs have a runner whose run has ended, and its graphs."""
        if self.key is not None:
            runner.adapter = None  # graphs of a drafter keep no target alive
            release(self.key, runner, self)

    def run(
        self, runner: Any, key: Hashable, function: Function, inputs: Sequence[Tensor],
        is_ragged: bool = False,
    ) -> tuple[Tensor, ...]:  # fmt: skip
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
        self.results = _leave(self.results, function(*self.inputs))


def _leave(results: tuple[Tensor, ...], outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Copies outputs to where all runs leave theirs, and returns that; empty before the first."""
    if not results:
        with torch.inference_mode(False):
            results = tuple(torch.empty_like(output) for output in outputs)
    for result, output in zip(results, outputs, strict=True):
        result.copy_(output)
    return results
