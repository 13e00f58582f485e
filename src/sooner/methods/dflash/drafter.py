"""Drafts a block after each of the target's forwards: a chain of it, or a tree of its marginals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...engine.attention.block import MAX_ENTRIES, WORDS, Block, block_slots, pack_ancestors
from ...engine.attention.context import block_attention
from ...engine.interface import Outcome, Prompt
from ...engine.noise import Purpose
from ...engine.sampling import pick
from ...engine.tree import Paths, Tree
from ..chain_draft import match_vocabulary
from ..context import Context
from ..growth import MarginalTrees
from ..sized_draft import DraftRunner, PromptStates, ReadingDrafter
from ..target_layers import layer_states
from ..tree_size import TreeSize


class BlockRunner(DraftRunner):
    """Runs a drafter over blocks behind the context of each row.

    Entry `i` of a row's context is made from the target's states of its token `i`, and lies in slot
    `i` of every layer, at position `i`. What a block writes lies behind and is gone with the next
    `feed`: the target's own states of what was accepted take its place.

    Args:
        model: the drafter.
        adapter: the target's adapter, for its embedding and LM head.
        capacity: slots a row, a block included.
    """

    def __init__(self, model: Any, adapter: Any, capacity: int) -> None:
        super().__init__(model, adapter, model.config.num_hidden_layers, capacity)
        self.model, size, device = model, model.config.block_size, model.device
        words = WORDS if size <= MAX_ENTRIES else math.ceil(size / 32)
        whole = torch.ones(1, size, size, dtype=torch.bool, device=device)
        self._all = pack_ancestors(whole, words=words)  # every entry sees every other
        self._line = torch.arange(size, device=device)

    def remember(self, context: Tensor, sizes: list[int]) -> None:
        """Begin with the context of prompts.

        Args:
            context: `[rows, entries, hidden]`, padded on the right.
            sizes: real entries of each row.
        """
        if context.shape[1]:
            rotation = self.at(torch.arange(context.shape[1], device=context.device)[None])
            for layer in range(self.model.config.num_hidden_layers):
                self.cache.update(*self.model.keys_values(layer, context, rotation), layer)
        self.cache.set_lengths(sizes)

    def feed(self, context: Tensor, sizes: Tensor, counts: list[int]) -> None:
        """Add entries behind each row's context.

        Args:
            context: `[rows, entries, hidden]`, padded on the right.
            sizes: real entries of each row, `[rows]`.
            counts: the same on the host.
        """
        cache, sizes = self.cache, sizes.to(context.device)
        self.launch("feed", self._feed, context, sizes, is_ragged=True)
        cache.commit_path(sizes[:, None], sizes, is_chain=True)
        cache.note_commit(counts)

    def _feed(self, context: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
        cache, lengths = self.cache, self.cache.lengths_on(context.device)
        slots = lengths[:, None] + torch.arange(context.shape[1], device=context.device)
        rotation = self.at(slots)
        block = Block(lengths, sizes)  # padding goes to the trash slot
        cache.block_slots = block_slots(block, context.shape[1], cache.capacity + 1)
        for layer in range(self.model.config.num_hidden_layers):
            cache.update(*self.model.keys_values(layer, context, rotation), layer)
        cache.block_slots = None
        return ()

    def draft(self, anchors: Tensor) -> Tensor:
        """Returns logits of each place of a block, `[rows, places, vocab]`, in one forward.

        Args:
            anchors: the last committed token of each row, `[rows]`.
        """
        size = self.model.config.block_size
        (logits,) = self.launch("draft", self._draft, anchors, entries=size)
        return logits

    def _draft(self, anchors: Tensor) -> tuple[Tensor, ...]:
        model, config, cache = self.model, self.model.config, self.cache
        size, lengths = config.block_size, cache.lengths_on(model.device)
        tokens = anchors.new_full((len(anchors), size), config.mask_token_id)
        tokens[:, 0] = anchors
        rows = len(anchors)
        depths = self._line.expand(rows, -1)
        chain = Block(lengths)
        whole = Block(lengths, ancestors=self._all.expand(rows, -1, -1), depths=depths)

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            stores = cache.update(keys, values, layer)
            block = chain if config.causal[layer] else whole
            return block_attention(queries, *stores, block, window=config.windows[layer])

        cache.block_slots = block_slots(chain, size, cache.capacity + 1)
        rotation = self.at(lengths[:, None] + self._line)
        states = model.denoise(model.embed(tokens, self.adapter), rotation, attend)
        cache.block_slots = None
        first = 0 if config.from_anchor else 1
        return (model.logits(states[:, first:], self.adapter),)


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
