"""Static token trees: one shape for every row and round, drafted level by level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..decoding.tree import ROOT
from ..errors import SoonerError

Branching = tuple[tuple[int, ...], ...]
"""For each level, how many children each node of the level above has, best node first.

Nodes that are not listed have none; the first level lists the root's.
"""

STATIC_TREE: Branching = ((4,), (3, 2, 2, 1), (3, 2, 2, 1), (3,), (2,))
"""25 nodes in five levels, wide at the top and deep below the best: EAGLE's (Li et al. 2024)."""


@dataclass(frozen=True)
class Level:
    """One level of a static tree.

    Attributes:
        sources: nodes of the level above that have children here (`ROOT` for the first level).
        parents: for each node of this level, which of `sources` it hangs from.
        ranks: its place among its siblings, the most likely first.
        seen: what each source sees among all sources up to its own level, itself included,
            `[sources, sources so far]`; empty for the first level, whose source is committed.
    """

    sources: list[int]
    parents: list[int]
    ranks: list[int]
    seen: list[list[bool]]


class TreeShape:
    """A static tree, numbered level by level, siblings next to each other.

    Only nodes with children are forwarded by a draft; they are its *sources*.

    Args:
        branching: see `Branching`.
        most: no node has more children (a small vocabulary has no more tokens).

    Attributes:
        parents: parent of each node, or `ROOT`.
        ranks: place of each node among its siblings.
        levels: see `Level`.
        sizes: nodes within the first `n` levels, for each `n` from 0.
        slots: place of each source among the sources, in the order in which they are forwarded.
    """

    def __init__(self, branching: Branching, most: int = 1 << 30) -> None:
        self.parents: list[int] = []
        self.ranks: list[int] = []
        self.sizes = [0]
        self.slots: dict[int, int] = {}
        self.levels: list[Level] = []
        above: list[int | None] = [ROOT]  # nodes of the level above; `None` where one was clipped
        for counts in branching:
            above = self._grow(above, counts, most)
        while len(self.levels) > 1 and not self.levels[-1].parents:
            self.levels.pop()  # everything there hung from what was clipped
            self.sizes.pop()

    @property
    def depth(self) -> int:
        return len(self.levels)

    @property
    def nodes(self) -> int:
        return len(self.parents)

    @property
    def is_chain(self) -> bool:
        return self.parents == list(range(-1, self.nodes - 1))

    def _grow(
        self, above: list[int | None], counts: tuple[int, ...], most: int
    ) -> list[int | None]:
        """Add a level below the nodes `above`; returns its nodes."""
        sources: list[int] = []
        parents: list[int] = []
        ranks: list[int] = []
        nodes: list[int | None] = []
        for parent, count in zip(above, counts, strict=False):
            for rank in range(count):
                if parent is None or rank >= most:
                    nodes.append(None)
                    continue
                if parent not in sources:
                    sources.append(parent)
                nodes.append(self.nodes + len(ranks))
                parents.append(len(sources) - 1)
                ranks.append(rank)
        self.levels.append(Level(sources, parents, ranks, self._sight(sources)))
        self.parents += [sources[parent] for parent in parents]
        self.ranks += ranks
        self.sizes.append(self.nodes)
        return nodes

    def _sight(self, sources: list[int]) -> list[list[bool]]:
        """Number new sources and say what they see."""
        if sources == [ROOT]:
            return []
        for source in sources:
            self.slots[source] = len(self.slots)
        order = list(self.slots)
        return [[other in self.path(source) for other in order] for source in sources]

    def path(self, node: int) -> list[int]:
        """The nodes from the root's child down to `node`."""
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
    above = 1
    name = type(config).__name__
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
