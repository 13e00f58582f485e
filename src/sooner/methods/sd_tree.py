"""Speculative decoding with a static draft tree: several continuations checked in one forward."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..checks import option
from ..engine.acceptance import VerifyResult, follow_choices, pure, reject_tree
from ..engine.attention.block import MAX_ENTRIES, pack_ancestors
from ..engine.interface import Drafter, Outcome
from ..engine.loop import Rule
from ..engine.noise import Purpose, RowNoise
from ..engine.sampling import Processing
from ..engine.tree import ROOT, Paths, Tree
from ..errors import SoonerError
from ..models.base import Adapter
from .base import DraftMethod
from .context import Context
from .controller import RoundCost
from .draft_length import DraftLength
from .speculative import ChainDrafter, match_vocabulary, readable
from .tree_size import NOTHING, MeasuredSize, Size, TreeSize

Branching = tuple[tuple[int, ...], ...]
"""For each level, how many children each node of the level above has, best node first.

Nodes that are not listed have none; the first level lists the root's.
"""
STATIC_TREE: Branching = ((4,), (3, 2, 2, 1), (3, 2, 2, 1), (3,), (2,))
"""25 nodes in five levels, wide at the top and deep below the best: EAGLE's (Li et al. 2024)."""


class TreeShape:
    """Holds a static tree, numbered level by level, siblings next to each other.

    Only nodes with children are forwarded by a draft; they are its *sources*.

    Attributes:
        parents: parent of each node, or `ROOT`.
        ranks: position of each node among its siblings, the most likely first.
        sizes: nodes within the first `n` levels, for each `n` from 0.
        slots: position of each source among the sources, in the order in which they are forwarded.
    """

    def __init__(self, branching: Branching) -> None:
        self.parents: list[int] = []
        self.ranks: list[int] = []
        self.sizes = [0]
        above: Sequence[int] = [ROOT]  # nodes of the level above
        for counts in branching:
            for parent, count in zip(above, counts, strict=False):
                self.parents += [parent] * count
                self.ranks += range(count)
            above = range(self.sizes[-1], self.nodes)
            self.sizes.append(self.nodes)
        sources = dict.fromkeys(parent for parent in self.parents if parent != ROOT)
        self.slots = {source: slot for slot, source in enumerate(sources)}

    @property
    def depth(self) -> int:
        return len(self.sizes) - 1

    @property
    def nodes(self) -> int:
        return len(self.parents)

    @property
    def is_chain(self) -> bool:
        return self.parents == list(range(-1, self.nodes - 1))

    def path(self, node: int) -> list[int]:
        """Returns the nodes from the root's child down to `node`."""
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]


def check_branching(config: Any, branching: Branching) -> None:
    """Require `branching` to describe a tree.

    Raises:
        SoonerError: names the level, its value and what it may be.
    """
    above, name = 1, type(config).__name__
    if not branching:
        raise SoonerError(f"{name}: branching is empty; give one tuple of child counts a level")
    for number, counts in enumerate(branching, start=1):
        good = all(isinstance(count, int) and count >= 0 for count in counts)
        if not good or not 0 < len(counts) <= above or sum(counts) == 0:
            raise SoonerError(
                f"{name}: level {number} of branching is {counts!r}; it must be the child counts "
                f"of 1 to {above} nodes of the level above, not all of them 0"
            )
        above = sum(counts)


class LevelTensors:
    """What the level at `depth`, 0 behind the root, needs of the device, sent there once.

    Attributes:
        sources: nodes above with children here, `[sources]`; of the first level none is drafted.
        parents: node above each node, `[nodes]`.
        branching: children of a source at most.
        picks: position of each node among the best of all sources, `[nodes]`.
        depths: of every source so far, `[sources so far]`; 0 is right behind the root.
        seen: what each source sees of them, itself included, as bits where there are enough.
    """

    def __init__(self, shape: TreeShape, depth: int, device: torch.device) -> None:
        level = slice(*shape.sizes[depth : depth + 2])
        parents, ranks = shape.parents[level], shape.ranks[level]
        sources = list(dict.fromkeys(parents))
        self.sources = torch.tensor(sources, device=device)
        self.parents = torch.tensor(parents, device=device)
        self.branching = max(ranks) + 1
        pairs = zip(parents, ranks, strict=True)
        picks = [self.branching * sources.index(parent) + rank for parent, rank in pairs]
        self.picks = torch.tensor(picks, device=device)
        forwarded = [source for source in shape.slots if source < level.start]
        paths = {source: shape.path(source) for source in forwarded}
        depths = [len(path) - 1 for path in paths.values()]
        self.depths = torch.tensor(depths, device=device)
        seen = [[other in paths[source] for other in forwarded] for source in sources if forwarded]
        self.seen = torch.tensor([seen], device=device)
        if 0 < len(forwarded) <= MAX_ENTRIES:
            self.seen = pack_ancestors(self.seen)


class TreeDrafter(ChainDrafter):
    """Drafts a static tree with a second model, after the target's forward.

    The draft's cache holds its prompt, the committed tokens it was fed, and behind them the sources
    of the tree under verification. What the target accepted of those is kept by one gather, so
    that the next round feeds only the newest token and, if the path ended in a leaf, the leaf.

    Args:
        adapter, inputs, context: as of `ChainDrafter`.
        shape: the largest tree.
        sizing: chooses how many levels of it are drafted.
        draws: where rows draw, draw siblings without replacement and report their distribution;
            otherwise they are the draft's best tokens.
    """

    def __init__(
        self, adapter: Adapter, inputs: Mapping[str, Any], context: Context, shape: TreeShape,
        sizing: TreeSize, draws: bool,
    ) -> None:  # fmt: skip
        super().__init__(adapter, inputs, context, DraftLength(shape.nodes))
        self.shape = shape
        self.sizing, self.size = sizing, NOTHING
        self.draws = draws
        self.moved: Tensor | None = None  # slot of each pending node, if some were left out
        device = adapter.device
        self._above = torch.tensor(shape.parents, device=device)
        whole = Tree.of(self._above[None], self._above[None], [shape.nodes])
        self._reach = whole.ancestors()[0]  # [1 + nodes, 1 + nodes]
        self._levels = [LevelTensors(shape, depth, device) for depth in range(shape.depth)]
        slots = [shape.slots.get(node, shape.nodes) for node in range(shape.nodes)]
        self._slots = torch.tensor(slots, device=device)  # of each source, behind all: of a leaf
        self._sources = torch.tensor([ROOT, *shape.slots], device=device)

    def propose(self, outcome: Outcome) -> Tree:
        if not outcome.is_first:
            self.sizing.observe_round(self.size, self.drafted, self.round, outcome)
        cached, self.written = self._keep(outcome), None
        self.size, self.drafted = self.sizing.plan(outcome, self.runner is not None)
        self.round = RoundCost(len(self.drafted))
        if not self.size.depth:
            return Tree.empty(len(self.drafted), outcome.hidden.device)
        return self._draft(outcome, cached)

    def select_rows(self, rows: list[int]) -> None:
        super().select_rows(rows)
        if self.moved is not None:
            self.moved = self.moved[torch.tensor(rows, device=self.moved.device)]

    def merge(self, other: ChainDrafter) -> None:
        super().merge(other)
        if self.moved is not None:  # nothing is pending of rows that have just begun
            self.moved = pad(self.moved, (0, 0, 0, len(other.drafted)))

    def _keep(self, outcome: Outcome) -> Tensor | None:
        """Commit the sources that were accepted.

        They are the first nodes of an accepted path: a node with a child has been forwarded. The
        last one may have been, too; where nodes were left out the host can't tell, and it is fed
        again with the newest token.
        """
        if self.written is None:
            return None
        assert self.runner is not None
        accepted, limit = self._entries(outcome) - 1, self.written
        table = self._slots[None] if self.moved is None else self.moved
        # Behind what is accepted a path may hold anything.
        nodes = (outcome.committed.path.to(table.device) - 1).clamp(0, table.shape[1] - 1)
        slots = table.expand(len(nodes), -1).gather(1, nodes)  # [rows, depth]
        if self.moved is None:
            line = torch.arange(slots.shape[1], device=slots.device)
            cached = ((slots < limit) & (line < accepted[:, None])).sum(1)
            counts = [self._count_sources(path) for path in outcome.path]
        else:
            cached = (accepted - 1).clamp(min=0)
            counts = [max(count - 1, 0) for count in outcome.accepted]
        self.runner.cache.shift(-1)  # the newest token that was fed is the block's root
        self.runner.commit_path(slots + 1, cached + 1, is_chain=self.shape.is_chain)
        self.runner.note_commit([1 + count for count in counts])
        return cached

    def _count_sources(self, path: list[int]) -> int:
        """Returns how many of the accepted block entries `path` the draft has forwarded."""
        slots = (self.shape.slots.get(entry - 1) for entry in path[1:])
        return sum(slot is not None and slot < (self.written or 0) for slot in slots)

    def _draft(self, outcome: Outcome, cached: Tensor | None) -> Tree:
        assert self.runner is not None
        stats = self.context.stats
        start, began = stats.mark(), stats.work_mark()
        forward, missing = self._catch_up(outcome, cached)
        logits, rows = forward.logits, len(outcome.budget)  # [rows, 1, vocab]
        tokens = torch.empty(rows, 0, dtype=torch.long, device=logits.device)
        legal, probs = tokens.bool(), list[Tensor]()
        for depth, level in enumerate(self._levels[: self.size.depth]):
            if depth:
                sources = readable(tokens.index_select(1, level.sources), self.adapter)
                logits = self.runner.forward_level(sources, level.depths, level.seen).logits
            tokens, legal, p = self._extend(depth, logits, outcome, tokens, legal)
            probs += p
        self.written = len(level.depths)
        tree = self._tree(tokens, legal, probs, outcome.hidden.device)
        missed = missing - 1 if missing > 2 else 0  # two tokens take as long as one
        block = 1 + self.shape.sizes[self.size.depth]
        self.round = RoundCost(rows, block, forwards=self.size.depth, missed=missed)
        stats.between(began, stats.work_mark()).then(self.round.add_drafting)
        stats.record_drafting(self.size.depth, stats.between(start, stats.mark()))
        return tree

    def _extend(
        self, depth: int, logits: Tensor, outcome: Outcome, tokens: Tensor, legal: Tensor
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Add the children of one level; returns tokens and legal nodes with those, and what its
        nodes were drawn from.

        When they are drawn, all nodes of a level share the noise of their place: only one of them
        can be on the path that is accepted.

        Args:
            logits: behind the sources of the level, `[rows, sources, vocab]`.
            tokens: drafted so far, `[rows, nodes]`.
            legal: nodes that have a chance under the processed distribution, `[rows, nodes]` bool:
                the others, and all below them, are never shown to the target.
        """
        level, processing, probs = self._levels[depth], self.context.processing, list[Tensor]()

        def drafted() -> Paths:
            above = self._reach[level.sources + 1, 1 : 1 + tokens.shape[1]]
            # A processor may have no answer behind a token that it forbade: it is not asked.
            return Paths(tokens, above & legal[:, level.sources, None])

        logits = match_vocabulary(logits, self.context.target.vocab_size)
        keys = processing.scores(logits, drafted if depth else None, outcome.rows.prefix)
        if self.draws and processing.do_sample:
            p = processing.probabilities(keys)
            noise = outcome.noise.to(p.device)
            # A token's wait has rate `p`, so the k first are k draws without replacement, in order
            # (Efraimidis and Spirakis 2006).
            keys = (p / noise.waiting(Purpose.DRAFT, depth, p.shape[-1])).log()
            probs = [p]
        keys, best = keys.topk(level.branching)  # [rows, sources, most]
        new = best.flatten(1).index_select(1, level.picks)
        has_chance = keys.flatten(1).index_select(1, level.picks) > -torch.inf
        if depth:
            has_chance &= legal.index_select(1, level.parents)
        return torch.cat([tokens, new], 1), torch.cat([legal, has_chance], 1), probs

    def _tree(
        self, tokens: Tensor, legal: Tensor, levels: list[Tensor], device: torch.device
    ) -> Tree:
        """Returns the tree to verify: the legal nodes within each row's budget."""
        sizes, probs = [self.shape.sizes[depth] for depth in self.drafted], None
        if levels:  # what the children of every block entry were drawn from
            drawn = torch.cat(levels, 1)
            probs = drawn.new_zeros(len(drawn), 1 + tokens.shape[1], drawn.shape[2])
            probs.index_copy_(1, self._sources[: drawn.shape[1]] + 1, drawn)
        parents = self._above[: tokens.shape[1]].expand_as(tokens)
        tree = Tree.of(tokens, parents, sizes, probs, self.shape.is_chain)
        self.moved = None
        if self.context.processing.do_sample or self.context.processing.changes_scores:
            tree = self._without_illegal(tree, legal & tree.valid())
        return replace(
            tree, tokens=tree.tokens.to(device), parents=tree.parents.to(device),
            sizes=tree.sizes.to(device),
            probs=None if tree.probs is None else tree.probs.to(device),
        )  # fmt: skip

    def _without_illegal(self, tree: Tree, fine: Tensor) -> Tree:
        """Move the nodes that are `fine`, `[rows, nodes]`, to the front, in their order."""
        order = torch.where(fine, 0, 1).argsort(dim=1, stable=True)
        sizes = fine.sum(1)
        place = fine.cumsum(1) - 1  # [rows, nodes]: where each node goes
        above = torch.where(
            tree.parents < 0, tree.parents, place.gather(1, tree.parents.clamp(min=0))
        )
        probs = tree.probs
        if probs is not None:
            entries = pad(order + 1, (1, 0))[..., None]
            probs = probs.gather(1, entries.expand(-1, -1, probs.shape[2]))
        made = Tree(
            tree.tokens.gather(1, order), above.gather(1, order), sizes, probs, tree.is_chain
        ).trimmed()
        self.moved = self._slots[order[:, : made.nodes]]
        return made


SIBLINGS = ("drawn", "top")


@dataclass(frozen=True)
class SDTree(DraftMethod):
    """Runs speculative decoding with a static tree (SpecInfer, Miao et al. 2024; shape of EAGLE).

    Each round drafts a tree with one draft forward a level. Greedy decoding follows the
    target's choices down the tree. Sampling is exact either way:

    - `drawn` siblings are drawn without replacement from the draft's processed distribution and
      verified one after the other by rejection sampling;
    - `top` siblings are the draft's best tokens, and the target's own draw is followed while it
      is among them.

    Args:
        others: draft, draft_inputs, as of `DraftMethod`.
        branching: the tree, for each level the child counts of the nodes above (see `Branching`),
            or `"auto"` for as many levels of EAGLE's tree as measurably pay, which may be none.
            What `"auto"` measures is kept from call to call of this object.
        siblings: how children are chosen when sampling.

    Raises:
        SoonerError: a branching that is no tree, an unknown name, or different tokenizers.
    """

    branching: Branching | Literal["auto"] = "auto"
    siblings: Literal["drawn", "top"] = option("drawn", known=SIBLINGS)
    measured: weakref.WeakKeyDictionary[Any, MeasuredSize] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, repr=False, compare=False
    )
    name: ClassVar[str] = "sd-tree"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_branching(self, self._largest)

    def largest_block(self) -> int:
        return 1 + TreeShape(self._largest).nodes

    @property
    def _largest(self) -> Branching:
        return STATIC_TREE if self.branching == "auto" else self.branching

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        adapter, inputs = self.draft_of(context)
        shape = TreeShape(self._largest)
        levels = [Size(shape.sizes[depth], depth) for depth in range(1, shape.depth + 1)]
        sizing = TreeSize(levels[-1])
        if self.branching == "auto":
            measured = MeasuredSize(levels[-1], levels)
            sizing = self.measured.setdefault(context.target.model, measured)
            sizing.begin(context.stats.note)
        is_drawn = self.siblings == "drawn"
        return TreeDrafter(adapter, inputs, context, shape, sizing, is_drawn), reject_siblings


@pure
def reject_siblings(
    tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
) -> VerifyResult:
    """Returns rejection sampling of drawn siblings; a plain draw where there is no draft."""
    if tree.probs is None:
        return follow_choices(tree, scores, processing, noise)
    return reject_tree(tree, processing.probabilities(scores), noise)
