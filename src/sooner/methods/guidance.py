"""Classifier-free guidance: two contexts decide one token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from ..engine.interface import Prompt
from ..engine.runner import Forward, ModelRunner, OnPrefill
from ..engine.tree import Tree
from ..models.base import Adapter


class GuidedRunner(ModelRunner):
    """A runner whose batch holds every row twice: with its condition, and without.

    The rows with their condition come first. What leaves the runner has one row of each pair: its
    logits are `uncond + scale * (cond - uncond)` (Ho & Salimans 2022, in the form that
    transformers uses), mixed before any logits processing, so that a draft is verified once, by the
    distribution that is sampled from. A scale of 1 is the condition alone; more follows the
    condition more closely.
    """

    def __init__(self, adapter: Adapter, capacity: int, scale: float) -> None:
        super().__init__(adapter, capacity)
        self.scale = scale

    def prefill_chunks(
        self, prompt: Prompt, chunk: int | None = None, on_states: OnPrefill | None = None
    ) -> Iterator[Forward | None]:
        """Run prompts of `2 * rows` rows; the conditional half comes first."""
        for forward in super().prefill_chunks(prompt, chunk, on_states):
            yield None if forward is None else self._mix(forward)

    def forward_tree(self, roots: Tensor, tree: Tree) -> Forward:
        both = torch.arange(tree.rows, device=roots.device).repeat(2)
        twice = replace(tree, probs=None).select_rows(both)
        return self._mix(super().forward_tree(roots.repeat(2), twice))

    def forward_chain(self, tokens: Tensor, written: int = 0) -> Forward:
        # `forward_tree` comes through here too, with rows that are doubled already.
        if tokens.shape[0] == len(self.lengths):
            return super().forward_chain(tokens, written)
        return self._mix(super().forward_chain(tokens.repeat(2, 1), written))

    def commit_path(self, path: Tensor, entries: Tensor, is_chain: bool) -> None:
        super().commit_path(path.repeat(2, 1), entries.repeat(2), is_chain)

    def note_commit(self, entries: list[int]) -> None:
        super().note_commit([*entries, *entries])

    def select_rows(self, rows: list[int]) -> None:
        pairs = len(self.lengths) // 2
        super().select_rows([*rows, *(pairs + row for row in rows)])

    def merge(self, other: ModelRunner) -> None:
        have, come = len(self.lengths) // 2, len(other.lengths) // 2
        super().merge(other)
        both = 2 * have
        new = range(both, both + come)
        # With their condition: these rows, then those of `other`; and then both without.
        super().select_rows([*range(have), *new, *range(have, both), *(come + row for row in new)])

    def _mix(self, forward: Forward) -> Forward:
        cond, uncond = forward.logits.float().chunk(2)  # [rows, entries, vocab]
        mixed = uncond + self.scale * (cond - uncond)
        # What both forbid stays forbidden; the difference of two infinities is not a number.
        mixed = torch.where(cond == uncond, cond, mixed)
        return Forward(mixed, forward.hidden.chunk(2)[0])
