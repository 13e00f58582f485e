"""Acceptance rules: pure functions from a draft and the target's distributions to a verdict.

Notation: `p` is the target's processed distribution, `q` the draft's. Block entry 0 is the root,
entry `1 + i` is node `i`; `p` has one distribution for each entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .tree import Tree


@dataclass(frozen=True)
class Verdict:
    """What a rule decided for each row.

    Attributes:
        path: block entries of the accepted nodes from the root down, `[rows, depth]`, padded with
            zeros behind `accepted`.
        accepted: number of accepted draft tokens, `[rows]`.
        bonus: the token that the target adds behind the accepted path, `[rows]`.
    """

    path: Tensor
    accepted: Tensor
    bonus: Tensor


def follow(tree: Tree, choices: Tensor) -> Verdict:
    """Descend while the target's choice is among the children (sampled descent).

    With `choices` the argmax of each entry this is greedy verification. With `choices` drawn from
    `p` at each entry it is exact sampling for any draft that was fixed without looking at the
    draws: only the draws along the path are used, each of them once.

    Args:
        tree: draft of `rows` rows and `nodes` nodes.
        choices: the target's choice at each block entry, `[rows, 1 + nodes]`.
    """
    if tree.nodes == 0:
        none = choices.new_zeros(tree.rows)
        return Verdict(choices.new_zeros(tree.rows, 0), none, choices[:, 0])
    above = tree.parents + 1  # [rows, nodes], as block entries
    hit = (choices.gather(1, above) == tree.tokens) & tree.valid()
    if tree.is_chain:
        accepted = hit.long().cumprod(1).sum(1)
        path = torch.arange(1, 1 + tree.nodes, device=hit.device).expand(tree.rows, -1)
        return Verdict(path, accepted, choices.gather(1, accepted[:, None])[:, 0])
    return _deepest(tree, hit, choices)


def _deepest(tree: Tree, hit: Tensor, choices: Tensor) -> Verdict:
    """The one path on which every node is a hit; siblings are distinct, so it is unique."""
    ancestors = tree.ancestors()  # [rows, entries, entries]
    good = torch.cat([torch.ones_like(hit[:, :1]), hit], 1)  # [rows, entries]; the root is good
    whole = (~ancestors | good[:, None]).all(-1)
    depths = ancestors.sum(-1) - 1  # [rows, entries]
    last = torch.where(whole, depths, -1).argmax(1)  # [rows]
    accepted = depths.gather(1, last[:, None])[:, 0]
    on_path = ancestors[torch.arange(tree.rows, device=last.device), last]
    on_path[:, 0] = False
    # Parents precede children, so the entries of the path in ascending order are the path.
    order = torch.where(on_path, 0, 1).argsort(dim=1, stable=True)
    inside = torch.arange(order.shape[1], device=order.device) < accepted[:, None]
    path = torch.where(inside, order, 0)[:, : tree.nodes]
    return Verdict(path, accepted, choices.gather(1, last[:, None])[:, 0])


@dataclass(frozen=True)
class Guess:
    """A token that a draft already drew for the place behind its whole chain.

    Attributes:
        tokens: `[rows]`.
        q: what they were drawn from, `[rows, vocab]`.
        known: rows that have a guess, `[rows]` bool.
    """

    tokens: Tensor
    q: Tensor
    known: Tensor


def couple(p: Tensor, guess: Guess, generator: torch.Generator | None = None) -> Tensor:
    """Draw from `p` so that the draw is the guess as often as possible, `[rows]`.

    `min(1, p(x) / q(x))` accepts the guess, else the draw comes from `norm(max(p - q, 0))`: one
    step of speculative sampling, so the result has distribution `p`.
    """
    here = torch.arange(p.shape[0], device=p.device)
    draws = torch.rand(p.shape[0], generator=generator, device=p.device)
    taken = guess.known & (draws * guess.q[here, guess.tokens] < p[here, guess.tokens])
    q = torch.where(guess.known[:, None], guess.q, 0.0)
    other = torch.multinomial(residual(p, q), 1, generator=generator)[:, 0]
    return torch.where(taken, guess.tokens, other)


def reject_chain(
    tree: Tree,
    p: Tensor,
    generator: torch.Generator | None = None,
    guess: Guess | None = None,
) -> Verdict:
    """Speculative sampling of a drawn chain (Leviathan et al. 2023, algorithm 1).

    A node `x` is accepted with probability `min(1, p(x) / q(x))`; at the first rejection the
    token comes from `norm(max(p - q, 0))`, behind a fully accepted chain from `p`.

    Args:
        tree: chains with `probs` set.
        p: `[rows, 1 + nodes, vocab]`, fp32, each row of the last axis sums to one.
        guess: what the draft already drew for the place behind the chain; the token there is
            coupled with it.
    """
    if tree.probs is None or not tree.is_chain:
        raise ValueError("reject_chain needs a chain with its draft probabilities")
    rows, nodes = tree.rows, tree.nodes
    q = tree.probs[:, :nodes]  # the distribution that node i was drawn from sits at its parent
    index = tree.tokens[..., None]
    p_token = p[:, :nodes].gather(2, index)[..., 0]  # [rows, nodes]
    q_token = q.gather(2, index)[..., 0]
    draws = torch.rand(rows, nodes, generator=generator, device=p.device)
    hit = (draws * q_token < p_token) & tree.valid()
    accepted = hit.long().cumprod(1).sum(1)  # [rows]
    here = torch.arange(rows, device=p.device)
    p_last = p[here, accepted]  # [rows, vocab]
    whole = accepted == torch.tensor(tree.sizes, device=p.device)
    q_last = torch.where(whole[:, None], 0.0, tree.probs[here, accepted])
    path = torch.arange(1, 1 + nodes, device=p.device).expand(rows, -1)
    if guess is None:
        bonus = torch.multinomial(residual(p_last, q_last), 1, generator=generator)[:, 0]
        return Verdict(path, accepted, bonus)
    # A row whose chain broke has the broken node for its guess, already refused: q alone is left.
    behind = Guess(guess.tokens, torch.where(whole[:, None], guess.q, q_last), guess.known & whole)
    broken = torch.where(whole[:, None], p_last, residual(p_last, q_last))
    return Verdict(path, accepted, couple(broken, behind, generator))


def reject_tree(tree: Tree, p: Tensor, generator: torch.Generator | None = None) -> Verdict:
    """Multi-candidate rejection sampling for trees whose siblings were drawn *without* replacement.

    Siblings are tried in the order of their index. A rejected sibling `x` leaves
    `p <- norm(max(p - q, 0))` and `q <- norm(q with q(x) = 0)`, so the next one is judged against
    what is left (SpecInfer, Miao et al. 2024; without replacement as in Jeon et al. 2024).

    Args:
        tree: trees with `probs` set.
        p: `[rows, 1 + nodes, vocab]`, fp32.
    """
    if tree.probs is None:
        raise ValueError("reject_tree needs the draft probabilities of the tree")
    rows, device = tree.rows, p.device
    here = torch.arange(rows, device=device)
    valid = tree.valid()
    entry = torch.zeros(rows, dtype=torch.long, device=device)  # deepest accepted block entry
    left = p[here, 0].clone()  # [rows, vocab]: what the target still has to give at `entry`
    draft = tree.probs[here, 0].clone()
    path = torch.zeros(rows, tree.nodes, dtype=torch.long, device=device)
    accepted = torch.zeros(rows, dtype=torch.long, device=device)
    # Node order is sibling order and parents precede children: one pass visits every decision.
    for node in range(tree.nodes):
        asked = valid[:, node] & (tree.parents[:, node] + 1 == entry)
        token = tree.tokens[:, node]
        draws = torch.rand(rows, generator=generator, device=device)
        taken = asked & (draws * draft[here, token] < left[here, token])
        refused = asked & ~taken
        shrunk = draft.clone()
        shrunk[here, token] = 0.0
        left = torch.where(refused[:, None], residual(left, draft), left)
        draft = torch.where(refused[:, None], _normalised(shrunk), draft)
        entry = torch.where(taken, node + 1, entry)
        path[here[taken], accepted[taken]] = node + 1
        accepted = accepted + taken.long()
        left = torch.where(taken[:, None], p[:, node + 1], left)
        draft = torch.where(taken[:, None], tree.probs[:, node + 1], draft)
    bonus = torch.multinomial(left, 1, generator=generator)[:, 0]
    return Verdict(path, accepted, bonus)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """`norm(max(p - q, 0))` over the last axis; `p` itself where floating point leaves nothing."""
    rest = (p - q).clamp_(min=0.0)
    mass = rest.sum(-1, keepdim=True)
    return torch.where(mass > 0, rest / mass.clamp(min=torch.finfo(p.dtype).tiny), p)


def _normalised(weights: Tensor) -> Tensor:
    mass = weights.sum(-1, keepdim=True)
    return weights / mass.clamp(min=torch.finfo(weights.dtype).tiny)
