"""Drafts as users give them, read into token ids, and where each n-gram of them stands."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import index
from reprlib import repr as short
from typing import Any

from ...errors import SoonerError
from ..prompt_lookup import common_end

Ids = tuple[int, ...]

Drafts = tuple[tuple[tuple[Ids, ...], ...], ...]
"""For each row its drafts, each as alternatives of one region, of which there may be one."""


def read_drafts(drafts: Any, tokenizer: Any = None) -> Drafts:
    """Returns token ids of `drafts`, which are for each row a list of drafts.

    Args:
        drafts: a draft is a list, array or tensor of token ids, or a text; or a list of such, of
            which the target will generate one at most.
        tokenizer: turns texts into ids, without special tokens.

    Raises:
        SoonerError: something else than that, a negative id, or a text without a tokenizer.
    """
    rows = _listed(drafts, "drafts", "a list of drafts for each row")
    return tuple(
        tuple(
            _alternatives(draft, f"drafts[{row}][{number}]", tokenizer)
            for number, draft in enumerate(
                _listed(row_drafts, f"drafts[{row}]", "a list of drafts")
            )
        )
        for row, row_drafts in enumerate(rows)
    )


def _alternatives(draft: Any, where: str, tokenizer: Any) -> tuple[Ids, ...]:
    if not isinstance(draft, str):
        draft = _listed(draft, where, "a list of token ids, or a text")
        if draft and all(
            isinstance(item, str | list | tuple) or getattr(item, "ndim", 0) for item in draft
        ):
            return tuple(
                _ids(item, f"{where}[{number}]", tokenizer) for number, item in enumerate(draft)
            )
    return (_ids(draft, where, tokenizer),)


def _ids(draft: Any, where: str, tokenizer: Any) -> Ids:
    if isinstance(draft, str):
        if tokenizer is None:
            raise SoonerError(f"HSD: {where} is a text; give tokenizer=, or token ids")
        draft = tokenizer(draft, add_special_tokens=False)["input_ids"]
    ids = []
    for token in _listed(draft, where, "a list of token ids, or a text"):
        if not hasattr(token, "__index__") or index(token) < 0:
            raise SoonerError(
                f"HSD: {where} holds {short(token)}; token ids are whole numbers from 0 on"
            )
        ids.append(index(token))
    return tuple(ids)


def _listed(value: Any, where: str, expected: str) -> list[Any]:
    if hasattr(value, "tolist"):  # arrays and tensors
        value = value.tolist()
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise SoonerError(f"HSD: {where} is {short(value)}; it must be {expected}")
    return list(value)


END = -1
"""Stands behind each draft: whatever draft comes next begins here."""
MAX_MATCHES = 16
"""Matches of one n-gram that are looked at: those nearest ahead of where the text is."""


class DraftIndex:
    """Holds all n-grams of several drafts, up to `ngram_size` tokens (Liao et al. 2026, eq. 4).

    Built once for a page. The drafts are an unordered set: matches are found in all of them with
    one dictionary access, and looking closer at those found is all that costs time.

    Args:
        drafts: token ids of each; empty ones are left out.
        ngram_size: longest n-gram, n.
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
        ngram_size: int = 3,
        groups: Sequence[int] | None = None,
    ) -> None:
        self.ngram_size = ngram_size
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
        self._following: dict[tuple[int, ...], list[int]] = {}
        for size in range(1, ngram_size + 1):
            # N-grams over an `END` are indexed too; no text holds one, so that they never match.
            grams = zip(*(self.tokens[place:] for place in range(size)), strict=False)
            for position, gram in enumerate(grams, start=size):
                self._following.setdefault(gram, []).append(position)

    def matches(self, text: Sequence[int], near: int = 0, limit: int = MAX_MATCHES) -> list[int]:
        """Returns places behind the longest n-gram that `text` ends in and some draft holds; there
        the continuations begin (eq. 5), or a draft ends.

        Args:
            text: the tokens so far.
            near: place where its continuation is expected.
            limit: of more matches than that, the first ones from `near` on, then from the start.
        """
        for size in range(min(self.ngram_size, len(text)), 0, -1):
            if places := self._following.get(tuple(text[-size:])):
                if len(places) <= limit:
                    return places
                first = bisect_left(places, near)
                return (places[first:] + places[:first])[:limit]
        return []

    def agreement(self, text: Sequence[int], place: int, maximum: int) -> int:
        """Returns how many tokens in front of `place`, up to `maximum`, are the last of `text`."""
        return common_end(self.tokens, place, text, maximum)

    def start_of(self, place: int) -> int:
        """Returns where the draft that holds `place` begins."""
        return self.starts[bisect_right(self.starts, place) - 1]

    def end_of(self, place: int) -> int:
        """Returns where the draft that holds `place` ends: the place of its `END`."""
        after = bisect_right(self.starts, place)
        return (self.starts[after] if after < len(self.starts) else len(self.tokens)) - 1
