"""A draft model's forwards as graphs, their rows padded."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from ..decoding.runner import Forward, ModelRunner
from .recorder import MOST_CELLS, GraphRecorder, Replays, power_of_two


class ForwardGraphs:
    """The forwards of a draft model, whose rows are padded; see `ModelRunner.graphs`."""

    def __init__(self, recorder: GraphRecorder) -> None:
        self.records = Replays(recorder)
        self._inputs: dict[Hashable, _Inputs] = {}

    def forward(
        self,
        runner: ModelRunner,
        tokens: Tensor,
        depths: Tensor | None,
        ancestors: Tensor | None,
        written: int,
    ) -> Forward | None:
        """As `ModelRunner` does it, whose result is gone with the next of this shape.

        `None` where it has to do it itself. Depths and ancestors of a tree's level are constants.
        """
        count, entries = tokens.shape
        rows = min(power_of_two(count), runner.cache.rows_held)
        wide = entries if ancestors is not None else power_of_two(entries)
        if self.records.failure or not runner.takes_graphs or rows * wide > MOST_CELLS:
            return None
        runner.cache.reserve(written + entries)
        runner.cache.lengths_on(tokens.device)
        if not self.records.keeps(runner.held):
            self._inputs.clear()
        key = (rows, wide, written, id(ancestors))
        if key not in self._inputs:
            self._inputs[key] = _Inputs(tokens, rows, wide, depths, ancestors, written)
        given = self._inputs[key]
        given.fill(tokens)
        self.records.run(key, lambda: given.forward(runner), [given.tokens, given.sizes])
        logits, hidden = given.results
        return Forward(logits[:count, :entries], hidden[:count, :entries])


class _Inputs:
    """Inputs of one shape at their addresses, and where its results are left."""

    def __init__(
        self,
        tokens: Tensor,
        rows: int,
        entries: int,
        depths: Tensor | None,
        ancestors: Tensor | None,
        written: int,
    ) -> None:
        with torch.inference_mode(False):
            self.tokens = torch.zeros(rows, entries, dtype=torch.long, device=tokens.device)
            self.sizes = torch.zeros(rows, dtype=torch.long, device=tokens.device)
        self.depths, self.ancestors, self.written = depths, ancestors, written
        self.results: tuple[Tensor, ...] = ()
        self._real: tuple[int, ...] = ()

    def fill(self, tokens: Tensor) -> None:
        """Take what is to be forwarded."""
        rows, entries = real = tokens.shape
        self.tokens[:rows, :entries].copy_(tokens)
        if real != self._real:
            self.sizes[:rows].fill_(entries if self.ancestors is None else self.written + entries)
            self.sizes[rows:].zero_()
            self._real = real

    def forward(self, runner: ModelRunner) -> None:
        with runner.using(len(self.tokens)):
            made = runner.forward_sized(
                self.tokens, self.sizes, self.depths, self.ancestors, self.written
            )
        found = (made.logits, made.hidden)
        if not self.results:
            with torch.inference_mode(False):
                self.results = tuple(torch.empty_like(one) for one in found)
        for kept, one in zip(self.results, found, strict=True):
            kept.copy_(one)
