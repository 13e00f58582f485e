"""Prompt lookup's index against a search over the whole text."""

from __future__ import annotations

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sooner
from sooner.methods.prompt_lookup import (
    MATCH_CHANCES,
    MAX_MATCH,
    MAX_PLACES,
    MatchAcceptance,
    NgramIndex,
)


def brute_force(
    tokens: list[int], shortest: int, longest: int, limit: int
) -> tuple[list[int], int]:
    """What followed the earlier place that matches most tokens before the end, and their number.

    Of the places of the longest n-gram that stands there; the latest where several match as many.
    The draft itself goes on the text, so it may be read too.
    """
    for size in range(longest, shortest - 1, -1):
        places = [
            end for end in range(len(tokens) - 1, size - 1, -1)
            if tokens[end - size : end] == tokens[len(tokens) - size :]
        ][:MAX_PLACES]  # fmt: skip
        if not places or limit < 1:
            continue
        lengths = [
            sum(
                1 for _ in takewhile(are_equal, zip(tokens[:end][::-1], tokens[::-1], strict=False))
            )
            for end in places
        ]
        length = max(min(length, MAX_MATCH) for length in lengths)
        end = next(
            end
            for end, found in zip(places, lengths, strict=True)
            if min(found, MAX_MATCH) == length
        )
        text = list(tokens)
        for step in range(limit):
            text.append(text[end + step])
        return text[len(tokens) :], length
    return [], 0


def are_equal(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]


@given(
    st.lists(st.lists(st.integers(0, 2), max_size=7), min_size=1, max_size=5),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(-1, 5),
)
def test_the_index_finds_what_a_search_finds(
    pieces: list[list[int]], shortest: int, more: int, limit: int
) -> None:
    longest = shortest + more
    index, text = NgramIndex(shortest, longest, pieces[0]), list(pieces[0])
    for piece in pieces[1:]:
        index.extend(piece)
        text += piece
        assert index.draft(limit) == brute_force(text, shortest, longest, limit)


def test_a_long_match_is_trusted_and_a_short_one_only_where_short_ones_were_right() -> None:
    acceptance = MatchAcceptance()
    assert acceptance.chances(1, 1)[0] < 0.5 < 0.9 < acceptance.chances(MAX_MATCH, 1)[0]
    assert list(acceptance.chances(1, 40)) == sorted(acceptance.chances(1, 40))
    for _ in range(100):
        acceptance.observe([5, 6, 7], 1, [5, 0])  # the second token lay behind a match of two
    ones, twos, threes = acceptance.chances(1, 3)
    assert ones > 0.7
    assert twos < 0.3
    assert threes == MATCH_CHANCES[2], "nothing was seen of it"


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
