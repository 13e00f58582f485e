"""Draft trees as theory sees them: which rank of a draft's continuations each node holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch

from sooner.engine.tree import ROOT
from sooner.methods.eagle.drafter import Growth
from sooner.methods.tree_draft import TreeShape

from .script import Process
from .settings import ReplaySettings


@dataclass(frozen=True)
class RankedTree:
    """A tree whose shape is the same in every round.

    Attributes:
        parents: parent of each node, or `ROOT`; parents come first.
        ranks: place of each node among its draft's continuations, the likeliest first.
        sources: nodes that are continued on each level, the root on the first.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    sources: tuple[int, ...]

    @classmethod
    def chain(cls, length: int) -> Self:
        return cls(tuple(range(-1, length - 1)), (0,) * length, (1,) * length)

    @classmethod
    def static(cls, shape: TreeShape) -> Self:
        """Returns the trees of `SDTree`."""
        sources = tuple(len(level.sources) for level in shape.levels)
        return cls(tuple(shape.parents), tuple(shape.ranks), sources)

    @classmethod
    def dynamic(cls, process: Process, settings: ReplaySettings) -> Self:
        """Returns the trees of `Eagle`, which are all alike where its confidences are."""
        top_k, logits = settings.eagle_top_k, process.logits()
        growth = Growth(top_k, 1, torch.device("cpu"))
        values = logits[:top_k] - logits.logsumexp(-1)
        ranks = torch.arange(top_k)
        sources = []
        for _ in range(settings.eagle_depth):
            width = growth.frontier.tokens.shape[1]
            sources.append(width)
            growth.extend(values.expand(1, width, -1), ranks.expand(1, width, -1))
        tree = growth.best(settings.eagle_nodes, [settings.eagle_depth], is_open=False)
        return cls(tuple(tree.parents[0].tolist()), tuple(tree.tokens[0].tolist()), tuple(sources))

    @property
    def nodes(self) -> int:
        return len(self.parents)

    def expected(self, chances: Sequence[float]) -> float:
        """Expected length of the accepted path: the sum over nodes of the chance of each one's
        path, where every token has a rank of its own draw (`chances` by rank)."""
        reach: list[float] = []
        for parent, rank in zip(self.parents, self.ranks, strict=True):
            above = 1.0 if parent == ROOT else reach[parent]
            reach.append(above * (chances[rank] if rank < len(chances) else 0.0))
        return sum(reach)

    def accepted(self, ranks: Sequence[int], start: int) -> int:
        """Tokens that are accepted from place `start` on of a text whose tokens have these
        ranks."""
        node, place = ROOT, start
        while (child := self._children.get((node, ranks[place % len(ranks)]))) is not None:
            node, place = child, place + 1
        return place - start

    @cached_property
    def _children(self) -> dict[tuple[int, int], int]:
        pairs = zip(self.parents, self.ranks, strict=True)
        return {(parent, rank): node for node, (parent, rank) in enumerate(pairs)}
