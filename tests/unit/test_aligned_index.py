"""Windowed alignment against a search through all drafts (HSD, eq. 4 and 5)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.methods.aligned.alignment import Alignment
from sooner.methods.aligned.index import END, DraftIndex
from sooner.methods.aligned.prior import Prior

TOKENS = st.integers(0, 3)
DRAFTS = st.lists(st.lists(TOKENS, max_size=9), max_size=4)
TEXT = st.lists(TOKENS, max_size=8)


def search(drafts: list[list[int]], text: list[int], window: int) -> list[list[int]]:
    """What follows the last `window` tokens of `text` in the drafts, or else fewer of them."""
    for size in range(min(window, len(text)), 0, -1):
        matches = [
            draft[start + size :]
            for draft in drafts
            for start in range(len(draft) - size + 1)
            if draft[start : start + size] == text[len(text) - size :]
        ]
        if matches:
            return matches
    return []


def rest(index: DraftIndex, place: int) -> list[int]:
    return index.tokens[place : index.end_of(place)]


@given(DRAFTS, TEXT, st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_the_index_finds_what_a_search_finds(
    drafts: list[list[int]], text: list[int], window: int
) -> None:
    index = DraftIndex(drafts, window)
    actual = [rest(index, place) for place in index.matches(text, limit=1000)]
    assert sorted(actual) == sorted(search(drafts, text, window))


@given(DRAFTS, TEXT)
@settings(max_examples=200, deadline=None)
def test_agreement_counts_backwards_and_stops_at_the_start_of_a_draft(
    drafts: list[list[int]], text: list[int]
) -> None:
    index = DraftIndex(drafts, 2)
    for place, token in enumerate(index.tokens):
        before = index.tokens[index.start_of(place) : place]
        same = [a == b for a, b in zip(reversed(before), reversed(text), strict=False)]
        expected = same.index(False) if False in same else len(same)
        assert index.agreement(text, place, 100) == expected
        assert index.agreement(text, place, 1) == min(expected, 1)
        assert (token == END) == (index.end_of(place) == place)


def test_longer_agreement_ranks_first_then_places_not_yet_visited() -> None:
    index = DraftIndex([[7, 1, 2, 3, 4], [9, 1, 2, 3, 5], [8, 1, 2, 3, 6]])
    row = Alignment(index, Prior())
    row.advance([9, 1, 2, 3])
    places = [place for _, place, _ in row.cursors]
    assert index.tokens[places[0]] == 5, "the only draft with the 9"
    row.advance([5])
    row.advance([0, 0, 0, 1, 2, 3])
    first = [index.tokens[place] for _, place, kind in row.cursors if kind == 3]
    assert first.index(5) == len(first) - 1


def test_drafts_without_tokens_are_no_drafts() -> None:
    index = DraftIndex([[], [1], []])
    assert index.starts == [0]
    assert index.tokens == [1, END]
    empty = Alignment(DraftIndex([]), Prior())
    empty.advance([1, 2])
    assert empty.cursors == []
    assert empty.branches(empty.cursors) == {}
