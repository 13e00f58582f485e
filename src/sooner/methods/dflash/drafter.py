"""Drafts a block after each of the target's forwards: a chain of it, or a tree of its marginals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...engine.interface import Outcome, Prompt
from ...engine.noise import Purpose
from ...engine.sampling import pick
from ...engine.tree import Paths, Tree
from ..chain_draft import match_vocabulary
from ..context import Context
from ..growth import MarginalTrees
from ..sized_draft import PromptStates, ReadingDrafter
from ..target_layers import layer_states
from ..tree_size import TreeSize
from .runner import BlockRunner


class BlockDrafter(ReadingDrafter[BlockRunner]):
    """Drafts a block with one forward of a DFlash drafter.

    A run that stays plain pays one projection a prompt token for the entries of the cache.

    *Chains*: greedy decoding takes the best token of each place; sampling draws each place from its
    marginal, which depends on no other place of the block, and the rule gets that marginal.
    *Trees* hold the most probable prefixes, not draws.

    Where processors read the text, places are processed one behind the other, each with the tokens
    that were drafted before it, and drafts are chains.

    Args:
        model: the drafter.
        context: the run.
        sizing: chooses the size of each draft.
        draws: sampled chains are drawn, for rejection sampling.
    """

    def __init__(self, model: Any, context: Context, sizing: TreeSize, draws: bool) -> None:
        super().__init__(context, sizing)
        self.model = model
        self.draws = draws
        self.trees = MarginalTrees()

    def on_prefill(self, prompt: Prompt, start: int, states: Tensor) -> None:
        if self.prompt is not None:
            with self.context.stats.phase("draft_prefill"):
                self.prompt.add(prompt, start, self._entries(states))

    def _entries(self, states: Tensor) -> Tensor:
        """Entries of the context, `[rows, entries, hidden]`, of the target's states with those of
        its layers."""
        layers = len(self.model.config.layers)
        entries: Tensor = self.model.context(layer_states(states, layers))
        return entries

    def record(self, outcome: Outcome) -> None:
        super().record(replace(outcome, hidden=self._entries(outcome.hidden)))

    def make_runner(self, prompt: PromptStates) -> BlockRunner:
        limit = self.context.stopping.limit or 0
        room = prompt.width + limit + self.model.config.block_size
        return BlockRunner(self.model, self.context.target, room)

    def read_prompt(self, runner: BlockRunner, prompt: PromptStates) -> None:
        _, states, sizes = prompt.entries()
        runner.remember(states, sizes)

    def forwards(self) -> int:
        return 1

    def draft(self, outcome: Outcome) -> Tree:
        runner, fed = self.ready_runner(), self.backlog.take()
        runner.feed(fed.states, fed.sizes, fed.counts)
        logits = runner.draft(outcome.committed.last(1)[:, 0].to(self.model.device))
        return self._tree(logits[:, : self.size.depth], outcome)

    def _tree(self, logits: Tensor, outcome: Outcome) -> Tree:
        """The draft from the logits of the places that it may use, `[rows, places, vocab]`."""
        processing = self.context.processing
        target = self.context.target
        logits = match_vocabulary(logits.to(target.device), target.vocab_size)
        reads_text = processing.costs is not None
        if reads_text:
            scores, tokens = self._in_turn(logits, outcome)
        else:
            scores = processing.scores(logits)
            tokens = self._chosen(scores, outcome)
        is_open = processing.changes_scores or self.model.token_ids is not None
        if self.draws or reads_text or self.size.nodes == 1:
            probs = None
            if processing.do_sample and self.draws:
                p = processing.probabilities(scores)
                # Nothing is drawn behind the last place; its distribution only keeps the shape.
                probs = torch.cat([p, torch.zeros_like(p[:, :1])], 1)
            return Tree.chain(tokens, self.levels, probs)
        count = min(self.size.nodes, scores.shape[-1])
        values, ids = scores.log_softmax(-1).topk(count)  # [rows, places, count]
        return self.trees.best(values, ids, self.size.nodes, self.levels, is_open)

    def _in_turn(self, logits: Tensor, outcome: Outcome) -> tuple[Tensor, Tensor]:
        """Scores and tokens of each place, processed behind those that were drafted before it."""
        processing, rows = self.context.processing, outcome.rows
        scores: list[Tensor] = []
        chain: list[Tensor] = []
        for place in range(logits.shape[1]):

            def drafted() -> Paths:
                tokens = torch.cat(chain, 1)
                return Paths(tokens, torch.ones_like(tokens, dtype=torch.bool)[:, None])

            here = logits[:, place : place + 1]
            scores.append(processing.scores(here, drafted if chain else None, rows.prefix))
            chain.append(self._chosen(scores[-1], outcome, place))
        return torch.cat(scores, 1), torch.cat(chain, 1)

    def _chosen(self, scores: Tensor, outcome: Outcome, place: int = 0) -> Tensor:
        """A token of each place from `place` on, `[rows, places]`."""
        if not (self.draws and self.context.processing.do_sample):
            return scores.argmax(-1)
        p = self.context.processing.probabilities(scores)
        ahead = torch.arange(place, place + p.shape[1], device=p.device)
        return pick(p, outcome.noise.to(p.device).uniforms(Purpose.DRAFT, ahead))
