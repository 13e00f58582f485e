"""Alignment with drafts, and the tree of what may follow, by definitions (HSD, eq. 4 to 6)."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.engine.tree import ROOT
from sooner.errors import SoonerError
from sooner.methods.aligned.alignment import LONGEST, NAMES, STOP, Alignment, Experience, Prior
from sooner.methods.aligned.index import END, DraftIndex, read_drafts
from sooner.methods.aligned.method import PrefixTree, grow

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
def test_the_index_finds_what_a_search_finds(
    drafts: list[list[int]], text: list[int], window: int
) -> None:
    index = DraftIndex(drafts, window)
    actual = [rest(index, place) for place in index.matches(text, limit=1000)]
    assert sorted(actual) == sorted(search(drafts, text, window))


@given(DRAFTS, TEXT)
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


FEW = st.integers(0, 2)
CONTINUATIONS = st.lists(
    st.tuples(st.lists(FEW, min_size=1, max_size=6), st.integers(1, LONGEST)), max_size=6
)
FREE = {"nodes": 1000, "depth": 1000, "width": 1000}


def row_of(*drafts: list[int], **options: object) -> Alignment:
    return Alignment(DraftIndex(list(drafts)), Prior(), **options)  # type: ignore[arg-type]


def with_continuations(continuations: list[tuple[list[int], int]]) -> Alignment:
    row = row_of()
    row.cursors = [([*tokens, STOP], 0, kind) for tokens, kind in continuations]
    return row


def paths(tree: PrefixTree) -> list[tuple[int, ...]]:
    """The tokens from the root down to each node."""
    prefixes: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        above = () if parent == ROOT else prefixes[parent]
        prefixes.append((*above, token))
    return prefixes


def is_drafted(tree: PrefixTree, text: list[int]) -> bool:
    return tuple(text) in paths(tree)


@given(CONTINUATIONS)
def test_the_tree_holds_every_prefix_of_every_continuation_once(
    continuations: list[tuple[list[int], int]],
) -> None:
    tree = grow(with_continuations(continuations), **FREE)
    expected = {
        tuple(tokens[:end]) for tokens, _ in continuations for end in range(1, len(tokens) + 1)
    }
    assert len(tree.tokens) == len(expected)
    assert set(paths(tree)) == expected


@given(CONTINUATIONS, st.integers(1, 12), st.integers(1, 5), st.integers(1, 4))
def test_limits_hold_and_the_first_nodes_are_the_smaller_tree(
    continuations: list[tuple[list[int], int]], nodes: int, depth: int, width: int
) -> None:
    row = with_continuations(continuations)
    tree = grow(row, nodes, depth, width)
    parents = set(tree.parents)
    assert len(tree.tokens) <= nodes
    assert all(len(path) <= depth for path in paths(tree))
    assert sum(node not in parents for node in range(len(tree.tokens))) <= width
    assert all(parent < node for node, parent in enumerate(tree.parents))
    assert tree.chances == sorted(tree.chances, reverse=True)
    whole = grow(row, 1000, depth, width)
    assert whole.tokens[: len(tree.tokens)] == tree.tokens
    assert whole.parents[: len(tree.parents)] == tree.parents


def test_a_draft_is_followed_again_after_a_wrong_token() -> None:
    """A wrong token of the draft, one too many, one too few, and two for one."""
    draft = [1, 2, 3, 4, 5, 6, 7, 8]
    for generated, then in (
        ([1, 2, 3, 60], [5, 6]),
        ([1, 2, 3, 60], [4, 5]),
        ([1, 2, 3, 60], [6, 7]),
        ([1, 2, 3, 60, 61], [6, 7]),
        ([1, 2, 3, 60, 61], [5, 6]),
    ):
        row = row_of(draft)
        row.advance(generated)
        assert is_drafted(grow(row, **FREE), then), (generated, then)


GROUPS = st.lists(
    st.lists(st.lists(TOKENS, min_size=1, max_size=7), min_size=1, max_size=3), max_size=4
)
ROUNDS = st.lists(st.lists(TOKENS, min_size=1, max_size=4), min_size=1, max_size=6)


class Brute(Alignment):
    """Notes each place that the best continuation went through, in the order of the text."""

    def _retire(self, seen: list[int]) -> None:  # type: ignore[override]
        self.places = [*getattr(self, "places", []), *seen]
        super()._retire(seen)


def unused(groups: list[list[list[int]]], places: list[int]) -> list[int]:
    """Starts of drafts of which no alternative was followed, from the definition.

    A region is used once its alternatives, together, have been gone through for half the length of
    one that was touched.
    """
    flat = [(number, draft) for number, group in enumerate(groups) for draft in group]
    starts = [0, *accumulate(len(draft) + 1 for _, draft in flat)]
    used: set[int] = set()
    for count in range(1, len(places) + 1):
        seen = set(places[:count])
        for number in range(len(groups)):
            mine = [
                (start, len(draft))
                for (other, draft), start in zip(flat, starts, strict=False)
                if other == number
            ]
            gone = [sum(start <= place < start + size for place in seen) for start, size in mine]
            if any(
                hits and 2 * sum(gone) >= size for hits, (_, size) in zip(gone, mine, strict=True)
            ):
                used.add(number)
    return [start for (number, _), start in zip(flat, starts, strict=False) if number not in used]


@given(GROUPS, ROUNDS)
def test_what_is_unused_follows_the_definition(
    groups: list[list[list[int]]], rounds: list[list[int]]
) -> None:
    flat = [draft for group in groups for draft in group]
    numbers = [number for number, group in enumerate(groups) for _ in group]
    row = Brute(DraftIndex(flat, 3, numbers), Prior())
    for new in rounds:
        row.advance(new)
        assert row._unused == unused(groups, row.places)


def test_alternatives_are_lists_within_a_draft() -> None:
    drafts = [[[1, 2], [[3], [4, 5]], [[[6]]]]]
    with pytest.raises(SoonerError, match=r"drafts\[0\]\[2\]\[0\] holds \[6\]; token ids are"):
        read_drafts(drafts)
    (row,) = read_drafts([[[1, 2], [[3], [4, 5]], []]])
    assert row == (((1, 2),), ((3,), (4, 5)), ((),))
    assert read_drafts([row]) == (row,)


@pytest.mark.parametrize("drafts", [[[0], [0, 0], [0]], [[0]] * 40, [[1, 1]] * 20 + [[1]] * 20])
def test_regions_of_the_same_text_are_no_explosion(drafts: list[list[int]]) -> None:
    """Each continuation has a place of its own, so there are never more than places."""
    row = Alignment(DraftIndex(drafts, 3), Prior())
    row.advance([3, 2])
    cursors = row.cursors
    for _ in range(60):
        branches = row.branches(cursors)
        assert all(
            len(next_cursors) <= len(row.index.tokens) for _, _, next_cursors in branches.values()
        )
        if not branches:
            break
        cursors = next(iter(branches.values()))[2]
    assert len(grow(row, nodes=64, depth=64, width=8).tokens) <= 64


def test_drafters_are_separated_and_bounded() -> None:
    experience = Experience()
    assert experience.of("") is experience.prior
    first = experience.of("0")
    assert experience.of("0") is first is not experience.of("1")
    for number in range(2, NAMES + 1):
        experience.of(str(number))
    assert experience.of("0") is not first
