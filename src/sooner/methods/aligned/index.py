"""Where each n-gram of a page's drafts stands, looked up without a search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

END = -1
"""Stands behind each draft: whatever draft comes next begins here."""

MOST = 16
"""Matches of one window that are looked at: those nearest ahead of where the text is."""


class DraftIndex:
    """Every n-gram of several drafts, up to `window` tokens long (HSD, Liao et al. 2026, eq. 4).

    Built once for a page. The drafts are an unordered set: matches are found in all of them with
    one dictionary access, and looking closer at those found is all that costs time.

    Args:
        drafts: token ids of each; empty ones are left out.
        window: longest n-gram, n.
        groups: a number for each draft; those with the same one are alternatives, of which a text
            says one at most. By default each stands alone.

    Attributes:
        tokens: all drafts one after the other, each followed by `END`.
        starts: place of the first token of each draft, ascending.
        siblings: for each of these, those of its alternatives, itself included.
    """

    def __init__(
        self,
        drafts: Sequence[Sequence[int]],
        window: int = 3,
        groups: Sequence[int] | None = None,
    ) -> None:
        self.window = window
        self.tokens: list[int] = []
        self.starts: list[int] = []
        self.siblings: dict[int, list[int]] = {}
        together: dict[int, list[int]] = {}
        numbers = range(len(drafts)) if groups is None else groups
        for draft, number in zip(drafts, numbers, strict=True):
            if len(draft):
                start = len(self.tokens)
                self.starts.append(start)
                self.siblings[start] = together.setdefault(number, [])
                self.siblings[start].append(start)
                self.tokens += [*draft, END]
        self._behind: dict[tuple[int, ...], list[int]] = {}
        for size in range(1, window + 1):
            # N-grams over an `END` are indexed too; no text holds one, so that they never match.
            grams = zip(*(self.tokens[place:] for place in range(size)), strict=False)
            for behind, gram in enumerate(grams, start=size):
                self._behind.setdefault(gram, []).append(behind)

    def matches(self, text: Sequence[int], near: int = 0, most: int = MOST) -> list[int]:
        """Places behind the longest n-gram that `text` ends in and some draft holds.

        Args:
            text: what was said so far.
            near: place where its continuation is expected.
            most: of more matches than that, the first ones from `near` on, then from the start.

        Returns:
            Places in `tokens`; there the continuations begin (eq. 5), or a draft ends.
        """
        for size in range(min(self.window, len(text)), 0, -1):
            if places := self._behind.get(tuple(text[-size:])):
                if len(places) <= most:
                    return places
                first = bisect_left(places, near)
                return (places[first:] + places[:first])[:most]
        return []

    def agreement(self, text: Sequence[int], place: int, most: int) -> int:
        """How many tokens in front of `place`, up to `most`, are the last ones of `text`."""
        limit = min(most, len(text), place)
        count = 0
        while count < limit and self.tokens[place - 1 - count] == text[-1 - count]:
            count += 1
        return count

    def start_of(self, place: int) -> int:
        """Where the draft that holds `place` begins."""
        return self.starts[bisect_right(self.starts, place) - 1]

    def end_of(self, place: int) -> int:
        """Where the draft that holds `place` ends: the place of its `END`."""
        after = bisect_right(self.starts, place)
        return (self.starts[after] if after < len(self.starts) else len(self.tokens)) - 1
