"""Acceptance with a tolerance: a draft token nearly as likely as the best one is as good."""

from __future__ import annotations

import torch
from torch import Tensor

from ...decoding.acceptance import Verdict, follow
from ...decoding.loop import Rule
from ...decoding.sampling import Processing
from ...decoding.tree import Tree


def follow_tolerantly(tolerance: float) -> Rule:
    """A rule that descends by eq. 8 to 11 with a tolerance below 1."""

    def rule(
        tree: Tree, scores: Tensor, processing: Processing, generator: torch.Generator | None
    ) -> Verdict:
        choices = processing.choose(scores, generator)
        return follow(tree, tolerated(tree, scores, choices, tolerance))

    return rule


def tolerated(tree: Tree, scores: Tensor, choices: Tensor, tolerance: float) -> Tensor:
    """The target's choices, bent towards the draft where the tolerance allows it (eq. 8 to 11).

    At each entry the likeliest child `u` (eq. 8) takes the place of the target's choice if

        log p(best) / log p(u) >= tolerance

    with `best` the likeliest token of all (eq. 9, 10); a choice that is among the children stays.
    Logarithms are not positive, so this is `log p(best) <= tolerance * log p(u)`, which also says
    what the quotient leaves open: with `p(best) = 1` no other token passes, nor does any of
    `p(u) = 0`. Following the result down the tree ends with the target's own choice (eq. 11). When
    sampling, the choice is the draw.

    Args:
        tree: draft of `rows` rows and `nodes` nodes.
        scores: processed, `[rows, 1 + nodes, vocab]`.
        choices: the target's choice at each block entry, `[rows, 1 + nodes]`.
        tolerance: tau, above 0 and up to 1.

    Returns:
        What to follow at each block entry, `[rows, 1 + nodes]`.
    """
    if tree.nodes == 0:
        return choices
    above = tree.parents + 1  # [rows, nodes], as block entries
    total = scores.logsumexp(-1)  # [rows, entries]
    best = (scores.amax(-1) - total).gather(1, above)  # [rows, nodes], log p of the best token
    rows = torch.arange(tree.rows, device=scores.device)[:, None]
    own = scores[rows, above, tree.tokens] - total.gather(1, above)  # [rows, nodes], log p(u)
    chosen = choices.gather(1, above) == tree.tokens
    passes = (chosen | (best <= tolerance * own)) & tree.valid()
    value = torch.where(chosen, torch.inf, own).masked_fill(~passes, -torch.inf)
    child = _best_child(tree, value, passes)
    drafted = tree.tokens.gather(1, child.clamp(max=tree.nodes - 1))
    return torch.where(child < tree.nodes, drafted, choices)


def _best_child(tree: Tree, value: Tensor, passes: Tensor) -> Tensor:
    """The first best one among the children of each entry that pass, `[rows, entries]`; the number
    of nodes where there is none."""
    above, nodes = tree.parents + 1, tree.nodes
    most = value.new_full((tree.rows, 1 + nodes), -torch.inf)
    most = most.scatter_reduce(1, above, value, "amax")
    is_best = passes & (value == most.gather(1, above))
    line = torch.arange(nodes, device=above.device).expand_as(above)
    none = torch.full((tree.rows, 1 + nodes), nodes, device=above.device)
    return none.scatter_reduce(1, above, torch.where(is_best, line, nodes), "amin")
