"""Alternatives of one region: followed in pieces, used together, never opened again."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.errors import SoonerError
from sooner.methods.aligned.alignment import Alignment
from sooner.methods.aligned.drafter import Limits, grow
from sooner.methods.aligned.index import DraftIndex, alternatives, read_drafts
from sooner.methods.aligned.prior import Prior

TOKENS = st.integers(0, 3)
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
@settings(max_examples=300, deadline=None)
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
    assert row == ((1, 2), ((3,), (4, 5)), ())
    assert [alternatives(draft) for draft in row] == [((1, 2),), ((3,), (4, 5)), ((),)]
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
    assert len(grow(row, Limits(nodes=64, depth=64, width=8)).tokens) <= 64
