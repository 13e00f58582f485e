"""Drafts of actions that need no head: the last action again, and what mostly follows a number."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sooner.decoding.interface import Drafter, Outcome
from sooner.decoding.loop import Rule
from sooner.decoding.tree import Tree
from sooner.methods.base import Method
from sooner.methods.context import Context
from sooner.methods.rules import follow_choices
from sooner.registry import DraftModel

Guess = Callable[[int, Sequence[int]], tuple[list[int], list[int]]]
"""Tokens and parents of a draft, by row and what it has said."""


@dataclass(frozen=True)
class GuessedAction(Method):
    """Drafts what a function says, which costs nothing.

    Args:
        guess: `(row, said) -> (tokens, parents)`, parents before children.
        nodes: most of them.
    """

    guess: Guess
    nodes: int
    name: ClassVar[str] = "guessed-action"
    summary: ClassVar[str] = "drafts of a robot's action that need no model"
    draft_model: ClassVar[DraftModel] = "none"

    def largest_block(self) -> int:
        return 1 + self.nodes

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        return GuessDrafter(self.guess), follow_choices


class GuessDrafter(Drafter):
    """Hands each round what its function says, cut to what a row may still say."""

    def __init__(self, guess: Guess) -> None:
        self.guess = guess

    def propose(self, outcome: Outcome) -> Tree:
        drafts = []
        for row, room in zip(outcome.rows.active, outcome.budget, strict=True):
            drafts.append(_cut(*self.guess(row, outcome.rows.generated[row]), room - 1))
        tokens, parents = ([one[side] for one in drafts] for side in (0, 1))
        return Tree.from_lists(tokens, parents, device=str(outcome.hidden.device))


def _cut(tokens: list[int], parents: list[int], levels: int) -> tuple[list[int], list[int]]:
    """The nodes of the first levels."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    kept = [node for node, depth in enumerate(depths) if depth <= levels]
    places = {node: place for place, node in enumerate(kept)}
    return [tokens[node] for node in kept], [places.get(parents[node], -1) for node in kept]


def repeated(before: np.ndarray) -> Guess:
    """The action that each row said before, `[rows, 7]` ids; a chain."""

    def guess(row: int, said: Sequence[int]) -> tuple[list[int], list[int]]:
        rest = [int(token) for token in before[row, len(said) :]]
        return rest, list(range(-1, len(rest) - 1))

    return guess


class ActionBigrams:
    """Which tokens mostly follow which at each place of an action, of demonstrations.

    Args:
        ids: of actions, `[actions, 7]`.
    """

    def __init__(self, ids: np.ndarray) -> None:
        self.length = ids.shape[1]
        counts: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        for place in range(1, self.length):
            for last, token in ids[:, place - 1 : place + 1].tolist():
                counts[place, last][token] += 1
            counts[place, -1].update(ids[:, place].tolist())  # whatever the last one was
        self._ranked = {
            key: [one for one, _ in found.most_common()] for key, found in counts.items()
        }

    def after(self, place: int, last: int, most: int) -> list[int]:
        """The likeliest tokens at a place, at most so many."""
        found = self._ranked.get((place, last)) or self._ranked[place, -1]
        return found[:most]

    def guess(self, widths: Sequence[int]) -> Guess:
        """Trees whose nodes at level i have `widths[i]` children each; all 1 makes chains."""

        def found(row: int, said: Sequence[int]) -> tuple[list[int], list[int]]:
            tokens: list[int] = []
            parents: list[int] = []
            level = [(-1, int(said[-1]))]
            for depth, place in enumerate(range(len(said), self.length)):
                width = widths[depth] if depth < len(widths) else 1
                below = []
                for parent, last in level:
                    for token in self.after(place, last, width):
                        below.append((len(tokens), token))
                        tokens.append(token)
                        parents.append(parent)
                level = below
            return tokens, parents

        return found
