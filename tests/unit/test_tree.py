"""Token trees against brute force."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.engine.tree import Paths, Tree


@st.composite
def parent_lists(draw: st.DrawFn, maximum: int = 9) -> list[int]:
    size = draw(st.integers(0, maximum))
    return [draw(st.integers(-1, node - 1)) for node in range(size)]


@st.composite
def forests(draw: st.DrawFn) -> Tree:
    parents = draw(st.lists(parent_lists(), min_size=1, max_size=4))
    return Tree.from_lists([list(range(len(row))) for row in parents], parents)


def chain_of(tree: Tree, row: int, entry: int) -> list[int]:
    """Block entries from `entry` up to the root, by walking."""
    walk = [entry]
    while walk[-1] != 0:
        walk.append(int(tree.parents[row, walk[-1] - 1]) + 1)
    return walk


@given(forests())
@settings(max_examples=60, deadline=None)
def test_ancestors_are_the_entries_on_the_way_to_the_root(tree: Tree) -> None:
    ancestors = tree.ancestors()
    assert ancestors.shape == (tree.rows, 1 + tree.nodes, 1 + tree.nodes)
    for row in range(tree.rows):
        for entry in range(1 + tree.nodes):
            expected = set(chain_of(tree, row, entry))
            assert set(ancestors[row, entry].nonzero()[:, 0].tolist()) == expected


@given(forests())
@settings(max_examples=60, deadline=None)
def test_depths_count_the_steps_to_the_root_of_every_real_node(tree: Tree) -> None:
    depths = tree.depths()
    for row, size in enumerate(tree.sizes):
        for entry in range(1 + size):
            assert depths[row, entry] == len(chain_of(tree, row, entry)) - 1
        assert tree.levels()[row] == depths[row, : 1 + size].max()


def test_select_rows_keeps_every_field_of_those_rows_in_that_order() -> None:
    tree = Tree.from_lists([[1, 2], [3], [4, 5]], [[-1, -1], [-1], [-1, 0]])
    probs = torch.arange(3.0)[:, None, None].expand(3, 3, 2)
    subset = Tree(tree.tokens, tree.parents, tree.sizes, probs).select_rows(torch.tensor([2, 0]))
    assert subset.tokens.tolist() == [[4, 5], [1, 2]]
    assert subset.parents.tolist() == [[-1, 0], [-1, -1]]
    assert subset.sizes.tolist() == [2, 2]
    assert subset.probs is not None
    assert subset.probs[:, 0, 0].tolist() == [2.0, 0.0]


@given(forests())
@settings(max_examples=40, deadline=None)
def test_an_entry_continues_the_nodes_on_its_path(tree: Tree) -> None:
    paths = Paths.of(tree)
    for row in range(tree.rows):
        assert not paths.above[row, 0].any()
        for entry in range(1, 1 + tree.sizes[row]):
            path = chain_of(tree, row, entry)[-2::-1]
            assert paths.above[row, entry].nonzero()[:, 0].tolist() == [node - 1 for node in path]
