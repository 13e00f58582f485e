"""The prefix tree of all continuations against its definition (HSD, eq. 6), and where it leads."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.engine.tree import ROOT
from sooner.methods.aligned.alignment import STOP, Alignment
from sooner.methods.aligned.drafter import Limits, PrefixTree, grow
from sooner.methods.aligned.index import DraftIndex
from sooner.methods.aligned.prior import LONGEST, Prior

TOKENS = st.integers(0, 2)
CONTINUATIONS = st.lists(
    st.tuples(st.lists(TOKENS, min_size=1, max_size=6), st.integers(1, LONGEST)), max_size=6
)
FREE = Limits(nodes=1000, depth=1000, width=1000)


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
@settings(max_examples=300, deadline=None)
def test_the_tree_holds_every_prefix_of_every_continuation_once(
    continuations: list[tuple[list[int], int]],
) -> None:
    tree = grow(with_continuations(continuations), FREE)
    expected = {
        tuple(tokens[:end]) for tokens, _ in continuations for end in range(1, len(tokens) + 1)
    }
    assert len(tree.tokens) == len(expected)
    assert set(paths(tree)) == expected


@given(CONTINUATIONS, st.integers(1, 12), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_limits_hold_and_the_first_nodes_are_the_smaller_tree(
    continuations: list[tuple[list[int], int]], nodes: int, depth: int, width: int
) -> None:
    row = with_continuations(continuations)
    tree = grow(row, Limits(nodes, depth, width))
    parents = set(tree.parents)
    assert len(tree.tokens) <= nodes
    assert all(len(path) <= depth for path in paths(tree))
    assert sum(node not in parents for node in range(len(tree.tokens))) <= width
    assert all(parent < node for node, parent in enumerate(tree.parents))
    assert tree.chances == sorted(tree.chances, reverse=True)
    whole = grow(row, Limits(1000, depth, width))
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
        assert is_drafted(grow(row, FREE), then), (generated, then)
