"""A draft model's forwards as graphs, their rows padded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..runner import Forward, ModelRunner
from .compiling import compiled_for, entering
from .recorder import MAX_CELLS, GraphRecorder, Replays, power_of_two
from .store import release


class ForwardGraphs:
    """The forwards of a draft model, whose rows are padded, with their inputs and results by shape;
    see `ModelRunner.graphs`.

    Args:
        recorder: of the device; `None` only pads.
        compiled: arguments of `torch.compile`, which makes each shape's forward.

    Attributes:
        key: under which they are stored when a run ends, see `store.key_of`; `None`: they end with
            it.
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
        if self.replays.failure or not runner.takes_graphs or rows * wide > MAX_CELLS:
            return None
        runner.cache.reserve(written + entries)
        runner.cache.lengths_on(tokens.device)
        if not self.replays.keeps(runner.buffers):
            self.inputs.clear()
        key = (rows, wide, written if is_tree else None)
        if key not in self.inputs:
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
        outputs = (made.logits, made.hidden)
        if not self.results:
            with torch.inference_mode(False):
                self.results = tuple(torch.empty_like(output) for output in outputs)
        for result, output in zip(self.results, outputs, strict=True):
            result.copy_(output)


def _forward(
    runner: ModelRunner, tokens: Tensor, sizes: Tensor, depths: Tensor | None,
    ancestors: Tensor | None, written: int, offset: Tensor,
) -> Forward:  # fmt: skip
    return runner.forward_sized(tokens, sizes, depths, ancestors, written, offset)
