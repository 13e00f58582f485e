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
