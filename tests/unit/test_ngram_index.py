"""Prompt lookup's index against a search over the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sooner
from sooner.methods.prompt_lookup import NgramIndex


def brute_force(tokens: list[int], shortest: int, longest: int, limit: int) -> list[int]:
    """What followed the latest earlier place that ends like the text, longest n-gram first.

    The draft itself goes on the text, so it may be read too.
    """
    for size in range(longest, shortest - 1, -1):
        if size > len(tokens) - 1:
            continue
        gram = tokens[len(tokens) - size :]
        for end in range(len(tokens) - 1, size - 1, -1):
            if tokens[end - size : end] == gram:
                text = list(tokens)
                for step in range(limit):
                    text.append(text[end + step])
                return text[len(tokens) :]
    return []


@given(
    st.lists(st.lists(st.integers(0, 2), max_size=7), min_size=1, max_size=5),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(-1, 5),
)
@settings(max_examples=300, deadline=None)
def test_the_index_finds_what_a_search_finds(
    pieces: list[list[int]], shortest: int, more: int, limit: int
) -> None:
    longest = shortest + more
    index, text = NgramIndex(shortest, longest, pieces[0]), list(pieces[0])
    for piece in pieces[1:]:
        index.extend(piece)
        text += piece
        assert index.continuation(limit) == brute_force(text, shortest, longest, limit)


def test_the_longest_match_wins_over_a_later_shorter_one() -> None:
    index = NgramIndex(1, 2, [1, 2, 7, 2, 8, 1, 2])
    assert index.continuation(1) == [7]


def test_a_text_with_a_period_is_drafted_to_the_full_length() -> None:
    assert NgramIndex(1, 3, [5, 5, 5]).continuation(4) == [5, 5, 5, 5]
    assert NgramIndex(1, 2, [9, 5, 6, 7, 5, 6, 7, 5]).continuation(5) == [6, 7, 5, 6, 7]


def test_nothing_is_drafted_where_nothing_repeats_or_no_room_is_left() -> None:
    assert NgramIndex(1, 3, [1, 2, 3]).continuation(4) == []
    assert NgramIndex(1, 3, []).continuation(4) == []
    assert NgramIndex(1, 3, [1, 1]).continuation(0) == []


@pytest.mark.parametrize(
    "options",
    [{"num_draft_tokens": 0}, {"num_draft_tokens": -3}, {"num_draft_tokens": 2.0},
     {"num_draft_tokens": True}, {"max_ngram": 0}, {"min_ngram": 0},
     {"min_ngram": 4, "max_ngram": 3}],
    ids=str,
)  # fmt: skip
def test_options_without_sense_are_refused_by_name(options: dict) -> None:
    with pytest.raises(
        sooner.SoonerError, match=r"PromptLookup: (num_draft_tokens|max_ngram|min_ngram) is"
    ):
        sooner.PromptLookup(**options)


def test_a_text_shorter_than_the_longest_ngram_still_prefers_the_longest_match() -> None:
    assert NgramIndex(1, 6, [1, 2, 2, 1, 2]).continuation(1) == [2]
