"""HSD with the paper's alignment to the letter, which this library's own is compared with.

The paper looks up windows of n tokens and does nothing beside that: no draft opens where none
matches, no shorter window is tried, no draft is taken up again behind a token that it had wrongly,
and a tree holds every continuation to its end (eq. 4 to 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sooner.methods import HSD
from sooner.methods.aligned.alignment import LONGEST, Alignment, Branch, Cursor, Experience
from sooner.methods.aligned.index import Drafts
from sooner.methods.context import Context

UNLIMITED = 1024
"""The limit of nodes, depth and width of a literal tree: more tokens than a region has. Where many
windows match, a tree ends there."""


class LiteralAlignment(Alignment):
    """An alignment that follows a text by matches of its last `n` tokens alone."""

    def __init__(self, base: Alignment) -> None:
        super().__init__(base.index, base.prior)
        self.cursors: list[Cursor] = []

    def advance(self, new: Sequence[int]) -> None:
        self.text += new
        index, size = self.index, self.index.ngram_size
        places = index.matches(self.text, limit=len(index.tokens))
        self.cursors = [
            (index.tokens, place, LONGEST)
            for place in places
            if index.agreement(self.text, place, size) == size
        ]

    def branches(self, cursors: Sequence[Cursor]) -> dict[int, Branch]:
        children: dict[int, Branch] = {}
        for tokens, place, kind in cursors:
            if (token := tokens[place]) >= 0:
                branch = children.setdefault(token, (kind, len(children), []))
                branch[2].append((tokens, place + 1, kind))
        return children


@dataclass(frozen=True)
class LiteralHSD(HSD):
    """`HSD` as the paper has it; its options for openings and sizes have no effect."""

    name: ClassVar[str] = "paper-literal"

    @classmethod
    def unlimited(cls, drafts: Any) -> LiteralHSD:
        """The method without a limit to its trees; `drafts` are as `HSD` takes them."""
        return cls(drafts, nodes=UNLIMITED, depth=UNLIMITED, width=UNLIMITED)

    def _rows(self, drafts: Drafts, context: Context, experience: Experience) -> list[Alignment]:
        return [LiteralAlignment(row) for row in super()._rows(drafts, context, experience)]
