"""Token trees against brute force, and what runs count of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sooner
import tiny
from method_matrix import METHODS
from sooner.engine.interface import Drafter, Outcome
from sooner.engine.tree import ROOT, Paths, Tree
from sooner.methods.sd_tree import STATIC_TREE


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
def test_ancestors_are_the_entries_on_the_way_to_the_root(tree: Tree) -> None:
    ancestors = tree.ancestors()
    assert ancestors.shape == (tree.rows, 1 + tree.nodes, 1 + tree.nodes)
    for row in range(tree.rows):
        for entry in range(1 + tree.nodes):
            expected = set(chain_of(tree, row, entry))
            assert set(ancestors[row, entry].nonzero()[:, 0].tolist()) == expected


@given(forests())
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
def test_an_entry_continues_the_nodes_on_its_path(tree: Tree) -> None:
    paths = Paths.of(tree)
    for row in range(tree.rows):
        assert not paths.above[row, 0].any()
        for entry in range(1, 1 + tree.sizes[row]):
            path = chain_of(tree, row, entry)[-2::-1]
            assert paths.above[row, entry].nonzero()[:, 0].tolist() == [node - 1 for node in path]


# What runs count, against a literal account of every round

Round = tuple[list[int], tuple[int, int]]
"""Parents of the tree that was offered, and `(new tokens, drafted of them)`; first the prefill."""


def deepest(parents: list[int]) -> int:
    """Deepest level of a tree."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent == ROOT else 1 + depths[parent])
    return max(depths, default=0)


def account_of(
    monkeypatch: pytest.MonkeyPatch, method: Any, **options: Any
) -> tuple[Any, list[Round]]:
    """The statistics and rounds of a run of one row."""
    trees: list[list[int]] = [[]]
    output: list[tuple[int, int]] = []
    build = type(method).build

    def watched(self: Any, context: Any) -> tuple[Drafter, Any]:
        made, rule = build(self, context)
        propose = made.propose

        def record_tree(outcome: Outcome) -> Tree:
            tree = propose(outcome)
            trees.append(tree.parents[0, : tree.sizes[0]].tolist())
            return tree

        made.propose = record_tree
        return made, rule

    monkeypatch.setattr(type(method), "build", watched)
    result = sooner.generate(
        tiny.model("llama"), tiny.inputs("llama", "text", 1), method,
        on_tokens=lambda row, new, drafted: output.append((len(new), drafted)),
        eos_token_id=None, do_sample=False, **options,
    )  # fmt: skip
    return result.stats, list(zip(trees, output, strict=True))


def runs_of(rounds: list[Round]) -> list[int]:
    """Tokens between two rejections, over the rounds that offered a tree."""
    lengths, length = [], 0
    for parents, (new, drafted) in rounds:
        length += new
        if drafted < deepest(parents):
            lengths.append(length)
            length = 0
    return [*lengths, length] if length else lengths


TREES = ("sd-tree", "eagle", "eagle-wide", "eagle-auto")
CHAINS = ("noisy-4", "itself", "prompt-lookup", "eagle-chain")


@pytest.mark.parametrize("name", [*TREES, *CHAINS])
def test_counts_of_a_run_are_those_of_a_literal_account(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats, account = account_of(monkeypatch, METHODS[name]("llama"), max_new_tokens=80)
    rounds = [entry for entry in account if entry[0]]
    levels = sum(deepest(parents) for parents, _ in rounds)
    accepted = sum(drafted for _, (_, drafted) in rounds)
    assert stats.num_draft_tokens == sum(len(parents) for parents, _ in rounds)
    assert stats.num_draft_levels == levels
    assert stats.acceptance_rate == pytest.approx(accepted / levels)
    assert stats.runs == runs_of(rounds)
    assert stats.acceptance_histogram == Counter(drafted for _, (_, drafted) in account[1:])


def test_a_tree_that_holds_the_whole_answer_is_never_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target drafts for itself with siblings: all that stands beside its own path is noise."""
    itself = sooner.SDTree(tiny.model("llama"), STATIC_TREE)
    stats, (_, *rounds) = account_of(monkeypatch, itself, max_new_tokens=41)
    assert any(len(parents) > deepest(parents) for parents, _ in rounds), "no branches"
    whole = [drafted == deepest(parents) for parents, (_, drafted) in rounds]
    assert all(whole[:-1]), "the last round may be cut short by the limit"
    assert len(stats.runs) == 1, "no rejection: all of it is one run"
    assert stats.accepted_run_length == 40
