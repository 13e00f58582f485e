"""HSD's alignment to the letter of the paper: windows of n tokens, and nothing beside them.

No draft opens where none matches, no shorter window is tried, no draft is taken up again behind a
token that it had wrongly, and a tree holds every continuation to its end (eq. 4 to 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sooner.methods import HSD
from sooner.methods.aligned import Experience
from sooner.methods.aligned.alignment import Alignment, Branch, Cursor
from sooner.methods.aligned.index import Drafts
from sooner.methods.aligned.size import LONGEST
from sooner.methods.context import Context

UNLIMITED = 1024
"""Nodes of a tree, tokens of a path and leaves: more than a region has. Where many windows match, a
tree ends there."""


class LiteralAlignment(Alignment):
    """Follows a text by matches of its last `n` tokens alone."""

    def __init__(self, base: Alignment) -> None:
        super().__init__(base.index, base.trust)
        self.cursors: list[Cursor] = []

    def advance(self, new: Sequence[int]) -> None:
        self.text += new
        index, size = self.index, self.index.ngram_size
        places = index.matches(self.text, most=len(index.tokens))
        self.cursors = [
            (index.tokens, place, LONGEST)
            for place in places
            if index.agreement(self.text, place, size) == size
        ]

    def branches(self, cursors: Sequence[Cursor]) -> dict[int, Branch]:
        found: dict[int, Branch] = {}
        for tokens, place, kind in cursors:
            if (token := tokens[place]) >= 0:
                branch = found.setdefault(token, (kind, len(found), []))
                branch[2].append((tokens, place + 1, kind))
        return found


@dataclass(frozen=True)
class LiteralHSD(HSD):
    """`HSD` as the paper has it; its options for openings and sizes have no effect."""

    name: ClassVar[str] = "paper-literal"

    @classmethod
    def of(cls, drafts: Any) -> LiteralHSD:
        """Without a limit to its trees; `drafts` as `HSD` takes them."""
        return cls(drafts, nodes=UNLIMITED, depth=UNLIMITED, width=UNLIMITED)

    def _rows(self, drafts: Drafts, context: Context, experience: Experience) -> list[Alignment]:
        return [LiteralAlignment(one) for one in super()._rows(drafts, context, experience)]
