"""EAGLE-2: a head that reads the target's own states drafts a tree that fits the moment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...checks import option
from ...engine.acceptance import follow_choices
from ...engine.attention.block import MAX_ENTRIES, WORDS, Block, block_slots, pack_ancestors
from ...engine.attention.context import block_attention
from ...engine.interface import Drafter, Outcome, Prompt
from ...engine.loop import Rule
from ...engine.rows import RowTensor
from ...engine.tree import Tree
from ...errors import SoonerError
from ...models.base import Packing
from ..context import Context
from ..growth import Growth
from ..sized_draft import DraftRunner, PromptStates, ReadingDrafter
from ..target_layers import read_layers
from ..trained import TrainedMethod
from ..tree_size import Size, TreeSize


@dataclass(frozen=True)
class Eagle(TrainedMethod):
    """Runs speculative decoding with a trained head and dynamic trees (EAGLE-2, Li et al. 2024).

    The head reads the target's states and goes on from them; it was trained for this very target
    (by `sooner train draft`, published as EAGLE-3, or with the target as MTP), which stays as it
    is. Each round grows a tree of its most confident continuations, which one forward verifies.
    Exact, greedy and sampling, as the trees hold the head's best tokens, not draws: the target's
    own choice is followed while it is there.

    Args:
        head: a trained `EagleHead`, `Eagle3Head` or `MtpHead`, its folder or its name on the model
            hub. It stays as it is: a target on another device or in another dtype is drafted for by
            a copy there.
        nodes: most nodes of a tree, or `"auto"` for the number (and depth) that measurably pays,
            which may be none. What `"auto"` measures is kept from call to call of this object.
        depth: levels of a tree: most draft tokens that a round can accept.
        top_k: continuations of a node, and nodes that are continued on a level; 1 drafts chains. By
            default 8, and 1 for the MTP layer of a target whose layers keep a state.
        max_nodes: upper limit for `"auto"`.
        legal: token ids that may be drafted at all, such as a policy's actions; `None` for all.

    Raises:
        SoonerError: an option out of range, or a folder without a head; in a run, a target that
            the head was not trained for.
        UnsupportedError: in a run with guidance, for which no head is trained.
    """

    head: Any
    nodes: int | Literal["auto"] = option("auto", 1)
    depth: int = option(5, 1)
    top_k: int | None = option(None, 1)
    max_nodes: int = option(50, 1)
    legal: tuple[int, ...] | None = field(default=None, repr=False)
    name: ClassVar[str] = "eagle"
    trained: ClassVar[str] = "head"
    size: ClassVar[str] = "nodes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_k is None:
            object.__setattr__(self, "top_k", getattr(self.head, "default_top_k", 8))
        if self.legal is not None:
            ids = tuple(sorted({int(token) for token in self.legal}))
            if not ids or ids[0] < 0:
                raise SoonerError(
                    f"Eagle: legal is {list(ids)[:3]}; give the ids that may be drafted, 0 or more "
                    "each, or None for all"
                )
            object.__setattr__(self, "legal", ids)

    @property
    def drafts_chains(self) -> bool:
        return self.top_k == 1

    def largest(self) -> Size:
        return Size(self.max_nodes if self.nodes == "auto" else int(self.nodes), self.depth)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        head, sizing = self.placed(context)
        vocab = context.target.vocab_size
        if self.legal is not None and self.legal[-1] >= vocab:
            raise SoonerError(
                f"Eagle: legal has id {self.legal[-1]}, the target's vocabulary ends at "
                f"{vocab - 1}; give ids of this target"
            )
        if layer_ids := head.layer_ids_for(context.target):
            read_layers(context, layer_ids)
        return EagleDrafter(head, context, sizing, self.top_k or 1, self.legal), follow_choices


class HeadRunner(DraftRunner):
    """Runs a head over committed entries and over the levels of a tree behind them.

    Entry `i` of a row is the target's state `f_i` with the embedding of the token behind it, and
    lies in slot `i`. Entries of tree levels are written behind the committed ones and are gone
    with the next `feed`: what was accepted comes back with the target's own states.

    Args:
        head, adapter, capacity: as of `DraftRunner`.
        largest: entries of the largest tree's levels.
        legal: token ids that may be drafted, ascending; `None` for all.

    Attributes:
        legal: the same with the target, `[ids]`.
    """

    def __init__(
        self, head: Any, adapter: Any, capacity: int, largest: int = MAX_ENTRIES,
        legal: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        self._words = max(WORDS, math.ceil(largest / 32))
        super().__init__(head, adapter, 1, capacity, (self._words, legal))
        self.head = head
        self._delta: RowTensor | None = None  # of positions behind the prompt, [axes, rows]
        entries = torch.eye(32 * self._words, dtype=torch.bool, device=head.device)
        self._self_masks = pack_ancestors(entries[None], words=self._words)  # [1, entries, words]
        self.legal = None if legal is None else torch.tensor(legal, device=adapter.device)

    @property
    def buffers(self) -> list[Tensor]:
        return [*super().buffers, *([] if self._delta is None else [self._delta.whole])]

    @property
    def visible(self) -> Tensor:
        """What a token behind the committed ones sees of a tree, as bits, `[rows, 1, words]`."""
        rows = len(self.cache.lengths_on(self.device))  # in use, those that are padding included
        return self._self_masks.new_zeros(rows, 1, self._words)

    def count_from(self, next_position: Tensor, lengths: list[int]) -> None:
        """Let entries behind prompts of so many tokens have the target's positions; `next_position`
        is that of the first token behind each, `[rows]` or `[axes, rows]`."""
        device = self.head.device
        delta = next_position.to(device) - torch.tensor(lengths, device=device)
        if self._delta is not None and self._delta.has_room(delta, self.cache.max_rows):
            self._delta.replace(delta)
        else:
            self._delta = RowTensor(delta, self.cache.max_rows, axis=-1)

    def remember(
        self, embeds: Tensor, states: Tensor, sizes: list[int], positions: Tensor | None = None
    ) -> None:
        """Commit the entries of prompts, whose estimates are not read.

        Args:
            embeds: of the token behind each state, `[rows, entries, hidden]`, padded on the right.
            states: as long.
            sizes: real entries of each row.
            positions: of the states' tokens, `[rows, entries]` or `[axes, rows, entries]`; by
                default entries are counted.
        """
        if embeds.shape[1]:
            fused = self.head.fuse(embeds.to(self.head.device), states.to(self.head.device))
            if positions is None:
                rotation = self._at(torch.arange(embeds.shape[1], device=self.head.device)[None])
            else:
                rotation = self.head.rotation(positions.to(self.head.device))
            self.cache.update(*self.head.keys_values(fused, rotation), 0)
        self.cache.set_lengths(sizes)

    def feed(self, embeds: Tensor, states: Tensor, sizes: Tensor, counts: list[int]) -> Tensor:
        """Commit entries behind each row, at least one, as `remember` takes them, but for `sizes
        [rows]` and `counts`, the same on the host; the estimate of its last, `[rows, 1, hidden]`.
        """
        cache, device = self.cache, self.head.device
        inputs, sizes = [embeds.to(device), states.to(device)], sizes.to(device)
        (estimate,) = self.launch("feed", self._feed, *inputs, sizes, is_ragged=True)
        cache.commit_path(sizes[:, None], sizes, is_chain=True)
        cache.note_commit(counts)
        return estimate

    def _feed(self, embeds: Tensor, states: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
        """Write entries, and estimate behind the last of each row's `sizes [rows]`."""
        head, lengths = self.head, self.cache.lengths_on(self.head.device)
        slots = lengths[:, None] + torch.arange(embeds.shape[1], device=head.device)
        fused = head.fuse(embeds, states)
        block = Block(lengths, sizes)  # padding goes to the trash slot
        keys, values = self._write(block, *head.keys_values(fused, self._at(slots)))
        index = (sizes[:, None] - 1).clamp(min=0)  # [rows, 1]
        last = fused.gather(1, index[..., None].expand(-1, -1, fused.shape[2]))
        slots = slots.gather(1, index)
        queries = head.queries(last, self._at(slots))
        last_entry = Block(slots[:, 0])  # the last entry, behind all others
        return (head.estimate(last, block_attention(queries, keys, values, last_entry)),)

    def level(
        self, tokens: Tensor, states: Tensor, depth: int, visible: Tensor, written: int
    ) -> tuple[Tensor, Tensor]:
        """Forward one level of trees, uncommitted: returns the estimates `[rows, entries, hidden]`,
        and what each entry itself sees.

        Args:
            tokens: `[rows, entries]`.
            states: the estimates that each of them follows, `[rows, entries, hidden]`.
            depth: how far the level lies behind the committed entries; 0 is right behind them.
            visible: what their parents see of the tree, as bits, `[rows, entries, words]`.
            written: entries of upper levels.
        """
        head, whole = self.head, written + tokens.shape[1]

        def run(tokens: Tensor, states: Tensor, visible: Tensor) -> tuple[Tensor, ...]:
            lengths = self.cache.lengths_on(head.device)
            visible = visible | self._self_masks[:, written:whole]
            block = Block(lengths, ancestors=visible, written=written)
            rotation = self._at(lengths[:, None] + depth)
            embeds = head.embed(self.adapter.embed_tokens(tokens), tokens)
            fused = head.fuse(embeds.to(head.device), states)
            keys, values = self._write(block, *head.keys_values(fused, rotation))
            queries = head.queries(fused, rotation)
            return head.estimate(fused, block_attention(queries, keys, values, block)), visible

        key = ("level", depth, written)
        states, visible = self.launch(key, run, tokens, states, visible, entries=whole)
        return states, visible

    def _write(self, block: Block, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        """Write a block's keys and values; the whole stores."""
        cache = self.cache
        cache.block_slots = block_slots(block, keys.shape[2], cache.capacity + 1)
        stores = cache.update(keys, values, 0)
        cache.block_slots = None
        return stores

    def logits(self, states: Tensor) -> Tensor:
        """Logits behind estimates, `[rows, entries, vocab]` of the target's vocabulary."""

        def run(states: Tensor) -> tuple[Tensor, ...]:
            return (self.head.scores(states, self.adapter),)

        (logits,) = self.launch("logits", run, states)
        return logits

    def use(self, rows: int) -> None:
        super().use(rows)
        if self._delta is not None:
            self._delta.use(rows)

    def select_rows(self, rows: list[int]) -> None:
        super().select_rows(rows)
        if self._delta is not None:
            self._delta.select_rows(torch.tensor(rows, dtype=torch.long))

    def merge(self, other: HeadRunner) -> None:
        super().merge(other)
        if self._delta is not None:
            assert other._delta is not None
            self._delta.merge(other._delta.used)

    def _at(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The rotation of what lies in `slots [rows or 1, entries]`."""
        if self._delta is None:
            return self.at(slots)
        rotation: tuple[Tensor, Tensor] = self.head.rotation(self._delta.used[..., None] + slots)
        return rotation


class EagleDrafter(ReadingDrafter[HeadRunner]):
    """Grows a tree after each of the target's forwards.

    Args:
        head, context, sizing: the draft head; as of `SizedDrafter`.
        top_k: continuations of a node, and nodes continued on a level.
        legal: token ids that may be drafted, ascending; `None` for all.
    """

    def __init__(
        self, head: Any, context: Context, sizing: TreeSize, top_k: int,
        legal: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(context, sizing)
        self.head = head
        vocab = head.vocab_size or context.target.vocab_size  # that can be drafted at all
        self.top_k = min(top_k, vocab if legal is None else min(vocab, len(legal)))
        self.legal = None if legal is None else tuple(legal)

    def on_prefill(self, prompt: Prompt, start: int, states: Tensor) -> None:
        if self.prompt is not None:
            embeds = None if start else self._head_embeds(prompt)
            self.prompt.add(prompt, start, self.head.read(states), embeds)

    def _head_embeds(self, prompt: Prompt) -> Tensor | None:
        """The prompt's embeddings as the head takes them; `None` is as the target does."""
        if self.head.embed_tokens is None and self.head.sees_pixels:
            return None
        inputs = self.context.inputs
        ids = Packing.of(inputs)(inputs["input_ids"]).repeat_interleave(self.context.copies, 0)
        target = self.context.target
        result: Tensor = self.head.embed_prompt(target, prompt.embeds, ids, prompt.visual)
        return result

    def make_runner(self, prompt: PromptStates) -> HeadRunner:
        context = self.context
        limit, largest = context.stopping.limit or 0, self.sizing.largest
        block = (self.top_k + 1) * (largest.depth + 1)  # committed at once, or of one tree
        slots = prompt.embeds.shape[1] + limit + block
        return HeadRunner(self.head, context.target, slots, block, self.legal)

    def read_prompt(self, runner: HeadRunner, prompt: PromptStates) -> None:
        positions = None
        if self.head.wants_positions:
            runner.count_from(prompt.next_position, prompt.lengths)
            positions = prompt.positions[..., :-1]
        runner.remember(*prompt.entries(), positions)

    def draft(self, outcome: Outcome) -> Tree:
        runner, fed = self.ready_runner(), self.take()
        tokens = fed.tokens.to(self.context.target.device)
        embeds = self.head.embed(self.context.target.embed_tokens(tokens), tokens)
        read = self.head.read(fed.states)
        states = runner.feed(embeds, read, fed.sizes, fed.counts)  # [rows, 1, hidden]
        if self.context.processing.is_plain:  # choices and all, for the host has nothing to say
            depth, is_drawn = self.size.depth, self.context.processing.do_sample

            def tree(states: Tensor) -> tuple[Tensor, ...]:
                growth = self._grown(runner, outcome, states)
                return growth.tokens, growth.parents, growth.scores

            temperature = None if is_drawn else self.head.config.temperature
            key, entries = ("tree", depth, self.top_k, temperature), (depth - 1) * self.top_k
            parts = runner.launch(key, tree, states, entries=entries)
            growth = Growth.of(self.top_k, depth, *parts)
        else:
            growth = self._grown(runner, outcome, states)
        # Whether some tokens may have no chance at all.
        is_open = self.legal is not None and self.head.vocab_size is not None
        is_open |= self.context.processing.changes_scores
        return growth.best(self.size.nodes, self.levels, is_open)

    def _grown(self, runner: HeadRunner, outcome: Outcome, states: Tensor) -> Growth:
        """All levels of a tree behind the estimates `[rows, 1, hidden]` of committed entries."""
        visible, written = runner.visible, 0
        growth = Growth(self.top_k, len(states), states.device)
        for depth in range(self.size.depth):
            if depth:
                front = growth.frontier
                above = front.parents[..., None]
                states = states.gather(1, above.expand(-1, -1, states.shape[2]))
                visible = visible.gather(1, above.expand(-1, -1, visible.shape[2]))
                states, visible = runner.level(front.tokens, states, depth - 1, visible, written)
                written += front.tokens.shape[1]
            logits = runner.logits(states)
            growth.extend(*self._continuations(logits, growth, outcome, runner.legal))
        return growth

    def _continuations(
        self, logits: Tensor, growth: Growth, outcome: Outcome, legal: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Log-confidence and id of the best tokens behind each frontier node, of `legal` ones.

        Both are `[rows, frontier, top_k]`.
        """
        drafted = growth.frontier_paths if growth.counts else None
        scores = self.context.processing.scores(logits, drafted, outcome.rows.prefix)
        if not self.context.processing.do_sample:
            # What counts is how likely a token is the mode, not how likely it is drawn.
            scores = scores / self.head.config.temperature
        mass = scores.logsumexp(-1, keepdim=True)
        if legal is None:
            best, tokens = scores.topk(self.top_k)
            return best - mass, tokens
        best, index = scores.index_select(-1, legal).topk(self.top_k)
        return best - mass, legal[index]
