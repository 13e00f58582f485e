"""Acceptance with a threshold against a literal loop over eq. 8 to 11 of HSD."""

from __future__ import annotations

import math
import random

import pytest
import torch

from sooner.engine.acceptance import follow
from sooner.engine.sampling import Processing
from sooner.engine.tree import ROOT, Tree
from sooner.methods.aligned.method import accepted_choices, follow_threshold

VOCAB = 6


def literal(
    tree: Tree, row: int, p: torch.Tensor, choices: torch.Tensor, tau: float
) -> tuple[list[int], int]:
    """Accepted block entries and the token behind them; `p` is `[entries, vocab]`, double."""
    entry, path = 0, []
    while True:
        children = {
            int(tree.tokens[row, node]): 1 + node
            for node in range(tree.sizes[row])
            if int(tree.parents[row, node]) + 1 == entry
        }
        u_hat = int(choices[row, entry])
        if not children:
            return path, u_hat
        u_star = max(children, key=lambda u: (p[entry, u].item(), -children[u]))
        best = p[entry].max().item()
        if u_hat in children:
            u_star = u_hat
        elif not ratio_passes(best, p[entry, u_star].item(), tau):
            return path, u_hat
        entry = children[u_star]
        path.append(entry)


def ratio_passes(best: float, prob: float, tau: float) -> bool:
    if prob == best:
        return True
    if prob == 0.0:  # log 0 is minus infinity, and anything over it is 0
        return False
    return math.log(best) / math.log(prob) >= tau


def random_tree(rng: random.Random, nodes: int) -> tuple[list[int], list[int]]:
    tokens, parents, edges = [], [], set()
    for node in range(nodes):
        parent, token = rng.randrange(-1, node), rng.randrange(VOCAB)
        if (parent, token) not in edges:
            edges.add((parent, token))
            tokens.append(token)
            parents.append(parent if parent < len(tokens) - 1 else ROOT)
    pairs = list(dict.fromkeys(zip(parents, tokens, strict=True)))
    if len(pairs) < len(tokens):  # a parent that was dropped made two siblings alike
        return random_tree(rng, nodes)
    return tokens, parents


def random_scores(rng: random.Random, rows: int, entries: int) -> torch.Tensor:
    """Scores with forbidden tokens, certain ones and near ties among them."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    scores = rng.choice((0.1, 1.0, 3.0)) * torch.randn(rows, entries, VOCAB, generator=generator)
    lost = torch.rand(rows, entries, VOCAB, generator=generator) < 0.2
    lost[..., 0] = False
    certain = torch.rand(rows, entries, generator=generator) < 0.15
    lost[certain] = torch.arange(VOCAB) != 3
    return scores.masked_fill(lost, -torch.inf)


@pytest.mark.parametrize("tau", [0.05, 0.3, 0.5, 0.75, 0.9, 0.99])
def test_the_rule_is_the_literal_loop(tau: float) -> None:
    rng = random.Random(int(100 * tau))
    relaxed = 0
    for _ in range(60):
        rows = rng.randrange(1, 4)
        trees = [random_tree(rng, rng.randrange(0, 9)) for _ in range(rows)]
        tree = Tree.from_lists(*([list(part) for part in zip(*trees, strict=True)]))
        scores = random_scores(rng, rows, 1 + tree.nodes)
        choices = scores.argmax(-1)
        verdict = follow_threshold(tau)(tree, scores, Processing(), None)
        p = scores.double().softmax(-1)
        for row in range(rows):
            path, bonus = literal(tree, row, p[row], choices, tau)
            accepted = int(verdict.accepted[row])
            assert verdict.path[row, :accepted].tolist() == path
            assert int(verdict.bonus[row]) == bonus
        relaxed += int((verdict.accepted > follow(tree, choices).accepted).sum())
    assert relaxed > 3 or tau > 0.9, "the threshold should matter"


def test_a_draw_stays_where_it_was_drafted_and_is_the_token_after_the_path() -> None:
    rng = random.Random(4)
    for _ in range(40):
        tree = Tree.from_lists(*([part] for part in random_tree(rng, 7)))
        scores = random_scores(rng, 1, 1 + tree.nodes)
        p = scores.double().softmax(-1)
        draws = torch.multinomial(p[0], 1)[None, :, 0]
        verdict = follow(tree, accepted_choices(tree, scores, draws, 0.6))
        path, bonus = literal(tree, 0, p[0], draws, 0.6)
        assert verdict.path[0, : int(verdict.accepted[0])].tolist() == path
        assert int(verdict.bonus[0]) == bonus


def test_rows_without_a_draft_are_left_as_they_are() -> None:
    choices = torch.tensor([[1], [2]])
    assert torch.equal(
        accepted_choices(Tree.empty(2), torch.zeros(2, 1, VOCAB), choices, 0.5), choices
    )
