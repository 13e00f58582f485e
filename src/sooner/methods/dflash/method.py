"""DFlash and DDTree: one forward of a drafter gives a block, taken as a chain or as a tree of its
marginals."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...checks import option
from ...engine.acceptance import follow_choices
from ...engine.attention.block import MAX_ENTRIES, WORDS, Block, block_slots, pack_ancestors
from ...engine.attention.context import block_attention
from ...engine.interface import Drafter, Outcome, Prompt
from ...engine.loop import Rule
from ...engine.noise import Purpose
from ...engine.sampling import pick
from ...engine.tree import Tree
from ...errors import UnsupportedError
from ..context import Context
from ..growth import MarginalTrees
from ..sized_draft import DraftRunner, PromptStates, ReadingDrafter
from ..speculative import draw_chain, match_vocabulary, reject
from ..target_layers import layer_states, read_layers
from ..trained import TrainedMethod
from ..tree_size import NODES, MeasuredSize, Size, TreeSize


@dataclass(frozen=True)
class BlockMethod(TrainedMethod):
    """What both methods share: a drafter of blocks, any size of which takes one forward."""

    drafter: Any
    draws: ClassVar[bool] = False
    """Sampled drafts are drawn, for rejection sampling."""

    def measured(self) -> MeasuredSize:
        return MeasuredSize(self.largest(), forwards=1)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        model, sizing = self.placed(context)
        read_layers(context, model.config.layers)
        drafter = BlockDrafter(model, context, sizing, self.draws)
        return drafter, reject if self.draws else follow_choices


@dataclass(frozen=True)
class DFlash(BlockMethod):
    """Runs speculative decoding with a block-diffusion drafter (DFlash, Chen et al. 2026).

    One forward of a small bidirectional drafter, which reads the target's states of several layers,
    fills a block of masked tokens; one forward of the target verifies the chain. Exact: under
    greedy decoding the target's choices are followed; under sampling each place is drawn from its
    own marginal, and rejection sampling needs to know just what a token was drawn from. With a
    chain head (DFlash 2, DSpark, Domino; `chain`) places are drawn in order, each from its
    distribution behind those before it.

    Args:
        drafter: a `DFlashModel`, or its folder or name, in z-lab's, SpecForge's, transformers' or
            speculators' layout. It stays as it is: a target on another device or in another dtype
            is drafted for by a copy.
        num_draft_tokens: of a round, at most those of a block, or `"auto"` for the number that
            measurably pays, which may be none.

    Raises:
        SoonerError: an option out of range, or a folder without a drafter; in a run, a target that
            it was not trained for.
        UnsupportedError: a run with guidance.
    """

    num_draft_tokens: int | Literal["auto"] = option("auto", 1)
    name: ClassVar[str] = "dflash"
    draws: ClassVar[bool] = True

    def largest(self) -> Size:
        limit, requested = self.drafter.config.drafts, self.num_draft_tokens
        length = limit if requested == "auto" else min(int(requested), limit)
        return Size(length, length)

    def measured(self) -> MeasuredSize:
        largest = self.largest()
        lengths = sorted({n for n in NODES if n < largest.nodes} | {largest.nodes})
        return MeasuredSize(largest, [Size(n, n) for n in lengths], forwards=1)


@dataclass(frozen=True)
class DDTree(BlockMethod):
    """Runs speculation with trees of a DFlash drafter's marginals (DDTree, Ringel et al. 2026).

    The same drafter and the same one forward as `DFlash`; of its marginals the `nodes` most
    probable prefixes are verified as a tree. Exact, greedy and sampling, as the trees hold likely
    tokens, not draws: the target's own choice is followed while it is there.

    Args:
        drafter: as of `DFlash`.
        nodes: most nodes of a tree, or `"auto"` for the number that measurably pays, which may be
            none. What `"auto"` measures is kept from call to call of this object.
        max_nodes: upper limit for `"auto"`.

    Raises:
        SoonerError: as of `DFlash`.
        UnsupportedError: a drafter with a chain head; a run with guidance.
    """

    nodes: int | Literal["auto"] = option("auto", 1)
    max_nodes: int = option(48, 1)
    name: ClassVar[str] = "ddtree"
    size: ClassVar[str] = "nodes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drafter.chain is not None:
            head = type(self.drafter.chain).__name__
            raise UnsupportedError(f"DDTree: a drafter with {head} has no marginals; use DFlash")

    def largest(self) -> Size:
        nodes = self.max_nodes if self.nodes == "auto" else int(self.nodes)
        return Size(nodes, min(nodes, self.drafter.config.drafts))


class BlockRunner(DraftRunner):
    """Runs a drafter over blocks behind the context of each row.

    Entry `i` of a row's context is made from the target's states of its token `i`, and lies in slot
    `i` of every layer, at position `i`. What a block writes lies behind and is gone with the next
    `feed`: the target's own states of what was accepted take its place.
    """

    def __init__(self, model: Any, adapter: Any, capacity: int) -> None:
        super().__init__(model, adapter, model.config.num_hidden_layers, capacity)
        self.model, size, device = model, model.config.block_size, model.device
        words = WORDS if size <= MAX_ENTRIES else math.ceil(size / 32)
        whole = torch.ones(1, size, size, dtype=torch.bool, device=device)
        self._all = pack_ancestors(whole, words=words)  # every entry sees every other
        self._line = torch.arange(size, device=device)

    def remember(self, context: Tensor, sizes: list[int]) -> None:
        """Begin with the context of prompts, `[rows, entries, hidden]`, padded on the right behind
        the `sizes` real entries of each row."""
        if context.shape[1]:
            rotation = self.at(torch.arange(context.shape[1], device=context.device)[None])
            for layer in range(self.model.config.num_hidden_layers):
                self.cache.update(*self.model.keys_values(layer, context, rotation), layer)
        self.cache.set_lengths(sizes)

    def feed(self, context: Tensor, sizes: Tensor, counts: list[int]) -> None:
        """Add entries behind each row's context, `[rows, entries, hidden]`, padded on the right
        behind the real ones: `sizes [rows]`, and `counts` on the host."""
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

    def draft(self, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """Returns logits of each place of a block, `[rows, places, vocab]`, and the states that
        they are made of, `[rows, places, hidden]`, in one forward behind the last committed token
        of each row, `anchors [rows]`."""
        size = self.model.config.block_size
        logits, states = self.launch("draft", self._draft, anchors, entries=size)
        return logits, states

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
        states = states[:, 0 if config.from_anchor else 1 :]
        return model.logits(states, self.adapter), states


class BlockDrafter(ReadingDrafter[BlockRunner]):
    """Drafts a block with one forward of a DFlash drafter.

    A run that stays plain pays one projection a prompt token for the entries of the cache.

    *Chains*: greedy decoding takes the best token of each place; sampling draws each place from its
    marginal, which depends on no other place of the block, and the rule gets that marginal.
    *Trees* hold the most probable prefixes, not draws.

    Where processors read the text, or the drafter has a chain head, places are processed one behind
    the other, each with the tokens that were drafted before it, and drafts are chains.

    Args:
        model, context, sizing: the drafter; as of `SizedDrafter`.
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
        runner, fed = self.ready_runner(), self.take()
        runner.feed(fed.states, fed.sizes, fed.counts)
        anchors = outcome.committed.last(1).to(self.model.device)  # [rows, 1]
        logits, states = runner.draft(anchors[:, 0])
        depth, target = self.size.depth, self.context.target
        logits = match_vocabulary(logits[:, :depth].to(target.device), target.vocab_size)
        if self.model.chain is not None or self.context.processing.costs is not None:
            return self._in_order(logits, states, anchors, outcome)
        return self._tree(logits, outcome)

    def _tree(self, logits: Tensor, outcome: Outcome) -> Tree:
        """The draft from the marginals of the places that it may use, `[rows, places, vocab]`."""
        processing = self.context.processing
        scores, draws = processing.scores(logits), self.draws and processing.do_sample
        if self.draws or self.size.nodes == 1:
            if not draws:
                return Tree.chain(scores.argmax(-1), self.levels)
            p = processing.probabilities(scores)
            places = torch.arange(p.shape[1], device=p.device)
            tokens = pick(p, outcome.noise.to(p.device).uniforms(Purpose.DRAFT, places))
            return Tree.chain(tokens, self.levels, p)
        count = min(self.size.nodes, scores.shape[-1])
        values, ids = scores.log_softmax(-1).topk(count)  # [rows, places, count]
        is_open = processing.changes_scores or self.model.token_ids is not None
        return self.trees.best(values, ids, self.size.nodes, self.levels, is_open)

    def _in_order(self, logits: Tensor, states: Tensor, anchors: Tensor, outcome: Outcome) -> Tree:
        """The chain whose places are drafted behind those before them, the first behind
        `anchors [rows, 1]`."""
        model, memory, places = self.model, None, itertools.count()

        def step(token: Tensor | None) -> Tensor:
            nonlocal memory
            here = slice(place := next(places), place + 1)
            if model.chain is None:
                return logits[:, here]
            token = anchors if token is None else token
            corrected, memory = model.corrected_logits(
                token, logits[:, here], states[:, here], memory, self.context.target
            )
            return corrected

        return draw_chain(step, self.levels, outcome, self.context.processing, draws=self.draws)
