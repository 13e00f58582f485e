"""Every acceptance rule keeps the target's joint distribution; planted biases are seen.

Each chi-square test fails with probability `fakes.ERROR` by chance; seeds are fixed, so it either
passes always or never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fakes import (
    ERROR,
    Table,
    block_distributions,
    chi_square,
    completed,
    drawn_tree,
    fixed_tree,
    row_noise,
)
from sooner.engine import acceptance
from sooner.engine.acceptance import VerifyResult, follow, reject_chain, reject_tree
from sooner.engine.tree import Tree

Rule = Callable[..., VerifyResult]
SAMPLES = 30_000
CHAINS = ([-1], [-1, 0], [-1, 0, 1])
TREES = (
    [-1, -1],
    [-1, -1, -1],
    [-1, -1, 0, 0, 1],
    [-1, 0, 0, -1, 3, 1],  # depth first: children before their uncles
    [-1, -1, -1, 0, 0, 1, 3, 3],
)


@pytest.fixture(params=[False, True], ids=["full", "zeros"])
def target(request: pytest.FixtureRequest) -> Table:
    return Table(vocab=4, length=4, seed=1, zeros=request.param)


@pytest.fixture
def draft(target: Table) -> Table:
    return Table(vocab=4, length=4, seed=2, near=Table(4, 4, seed=1))


def p_value(tree: Tree, verdict: VerifyResult, target: Table) -> float:
    return chi_square(completed(tree, verdict, target), target.joint())


def draws(p: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(p.flatten(0, 1), 1).view(p.shape[:2])


@pytest.mark.parametrize("parents", [*CHAINS, *TREES], ids=str)
def test_following_draws_through_a_fixed_tree_keeps_the_distribution(
    parents: list[int], target: Table
) -> None:
    tokens = [(3 * node + parent + 1) % 4 for node, parent in enumerate(parents)]
    tree = fixed_tree(parents, _distinct(parents, tokens), SAMPLES)
    verdict = follow(tree, draws(block_distributions(tree, target)))
    assert p_value(tree, verdict, target) > ERROR


@pytest.mark.parametrize("parents", CHAINS, ids=str)
def test_rejecting_a_chain_keeps_the_distribution(
    parents: list[int], target: Table, draft: Table
) -> None:
    tree = drawn_tree(parents, draft, SAMPLES)
    verdict = reject_chain(tree, block_distributions(tree, target), row_noise(SAMPLES))
    assert p_value(tree, verdict, target) > ERROR


@pytest.mark.parametrize("parents", [*CHAINS, *TREES], ids=str)
def test_rejecting_a_tree_keeps_the_distribution(
    parents: list[int], target: Table, draft: Table
) -> None:
    tree = drawn_tree(parents, draft, SAMPLES)
    verdict = reject_tree(tree, block_distributions(tree, target), row_noise(SAMPLES))
    assert p_value(tree, verdict, target) > ERROR


def test_rejection_accepts_as_often_as_the_overlap_of_p_and_q(target: Table, draft: Table) -> None:
    """More would be biased, less would be slow: the acceptance rate is `sum min(p, q)`."""
    tree = drawn_tree([-1], draft, SAMPLES)
    verdict = reject_chain(tree, block_distributions(tree, target), row_noise(SAMPLES))
    overlap = torch.minimum(target.p[0], draft.p[0]).sum().item()
    deviation = (overlap * (1 - overlap) / SAMPLES) ** 0.5
    assert abs(verdict.accepted.float().mean().item() - overlap) < 4 * deviation


# Planted biases: were one of these not seen, the tests above would prove nothing.


def test_drawing_from_p_after_a_rejection_is_seen(
    target: Table, draft: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptance, "residual", lambda p, q: p)
    for rule in (reject_chain, reject_tree):
        tree = drawn_tree([-1, 0], draft, SAMPLES)
        verdict = rule(tree, block_distributions(tree, target), row_noise(SAMPLES))
        assert p_value(tree, verdict, target) < ERROR


@pytest.mark.parametrize("rule", [reject_chain, reject_tree])
def test_a_draft_that_stores_another_q_is_seen(rule: Rule, target: Table, draft: Table) -> None:
    tree = drawn_tree([-1, 0], draft, SAMPLES)
    assert tree.probs is not None
    tree = replace(tree, probs=tree.probs.sqrt() / tree.probs.sqrt().sum(-1, keepdim=True))
    verdict = rule(tree, block_distributions(tree, target), row_noise(SAMPLES))
    assert p_value(tree, verdict, target) < ERROR


# Small cases whose outcome is known by hand.


def test_following_takes_the_deepest_run_of_hits() -> None:
    tree = Tree.from_lists([[5, 6, 7, 8]], [[-1, -1, 1, 2]])
    verdict = follow(tree, torch.tensor([[6, 0, 7, 9, 0]]))
    assert verdict.accepted.tolist() == [2]
    assert verdict.path[0, :2].tolist() == [2, 3]
    assert verdict.bonus.tolist() == [9]


def test_padding_nodes_are_never_accepted() -> None:
    """Padding is token 0 below the root, which here is just what the target wants."""
    tree = Tree.from_lists([[3, 4], []], [[-1, -1], []])
    verdict = follow(tree, torch.zeros(2, 3, dtype=torch.long))
    assert verdict.accepted.tolist() == [0, 0]
    chains = Tree.chain(torch.zeros(2, 2, dtype=torch.long), [2, 0])
    assert follow(chains, torch.zeros(2, 3, dtype=torch.long)).accepted.tolist() == [2, 0]


def test_an_empty_tree_is_a_plain_step() -> None:
    verdict = follow(Tree.empty(3), torch.tensor([[4], [5], [6]]))
    assert verdict.accepted.tolist() == [0, 0, 0]
    assert verdict.bonus.tolist() == [4, 5, 6]
    assert verdict.path.shape == (3, 0)


@pytest.mark.parametrize("rule", [reject_chain, reject_tree])
def test_a_draft_without_probabilities_can_not_be_rejected(rule: Rule) -> None:
    with pytest.raises(ValueError, match="probabilities"):
        rule(fixed_tree([-1], [0], 1), torch.ones(1, 2, 4) / 4, row_noise(1))


def _distinct(parents: list[int], tokens: list[int]) -> list[int]:
    """Siblings must be distinct: move a token on until it is."""
    for node, parent in enumerate(parents):
        siblings = {tokens[other] for other in range(node) if parents[other] == parent}
        while tokens[node] in siblings:
            tokens[node] = (tokens[node] + 1) % 4
    return tokens


@pytest.mark.parametrize("parents", [[-1, -1], [-1, -1, -1], [-1, -1, 0, 0, 1]], ids=str)
def test_siblings_drawn_with_replacement_are_seen(
    parents: list[int], target: Table, draft: Table
) -> None:
    tree = drawn_tree(parents, draft, SAMPLES, replacement=True)
    verdict = reject_tree(tree, block_distributions(tree, target), row_noise(SAMPLES))
    assert p_value(tree, verdict, target) < ERROR
