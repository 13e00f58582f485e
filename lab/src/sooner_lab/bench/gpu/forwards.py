"""Forwards of a model behind a context, without the prefill of one."""

from __future__ import annotations

from typing import Any

import torch

from sooner.decoding.runner import ModelRunner
from sooner.models import adapt

from .bench import GpuBench
from .models import prompts
from .timing import Run

PREFILLED = 512
"""Tokens that are prefilled; slots behind them hold zeros, which cost the same to read."""


class Forwards:
    """Forwards of blocks behind `context` committed tokens of each row; nothing is committed.

    Args:
        largest: entries of the largest block.
    """

    def __init__(
        self, bench: GpuBench, model: Any, context: int, largest: int, rows: int = 1
    ) -> None:
        self.bench, self.rows = bench, rows
        self.context = [context] * rows
        adapter = adapt(model)
        self.vocab = adapter.vocab_size
        self.runner = ModelRunner(adapter, context + largest)
        ids = self._tokens(min(context, PREFILLED))
        with torch.inference_mode():
            prompt = adapter.embed_prompt(
                {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            )
            self.runner.prefill(prompt)
            self.runner.rewind(self.context)

    def _tokens(self, width: int) -> torch.Tensor:
        bench = self.bench
        return prompts(self.rows, width, 1, self.vocab, bench.device, bench.settings.seed)

    def of(self, entries: int) -> Run:
        """A forward over a block of `entries`."""
        tokens = self._tokens(entries)

        def run() -> None:
            with torch.inference_mode():
                self.runner.forward_chain(tokens)
                self.runner.rewind(self.context)

        return run
