"""Acceptance rules: pure functions from a draft and the target's distributions to a verdict.

Notation: `p` is the target's processed distribution, `q` the draft's. Block entry 0 is the root,
entry `1 + i` is node `i`; `p` has one distribution for each entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from .noise import Purpose, RowNoise, first_to_come
from .sampling import Processing, pick
from .tree import Tree


@dataclass(frozen=True)
class VerifyResult:
    """What a rule has decided for each row.

    Attributes:
        path: block entries of the accepted nodes from the root down, `[rows, depth]`, then zeros.
        accepted: number of accepted draft tokens, `[rows]`.
        bonus: the token that the target adds behind the accepted path, `[rows]`.
    """

    path: Tensor
    accepted: Tensor
    bonus: Tensor


Rule = Callable[[Tree, Tensor, Processing, RowNoise], VerifyResult]
"""Verifies a draft: `(tree, processed scores, processing, noise)` give the accepted path."""


def pure(rule: Rule) -> Rule:
    """Marks a rule that nothing but its arguments decides, so that a graph may replay it."""
    rule.is_pure = True  # type: ignore[attr-defined]
    return rule


def follow(tree: Tree, choices: Tensor) -> VerifyResult:
    """Descend while the target's choice is among the children (sampled descent).

    With `choices` the argmax of each entry this is greedy verification. With `choices` drawn from
    `p` at each entry it is exact sampling for any draft that was fixed without looking at the
    draws: only the draws along the path are used, each of them once.

    Args:
        tree: draft of `rows` rows and `nodes` nodes.
        choices: the target's choice at each block entry, `[rows, 1 + nodes]`.
    """
    if tree.nodes == 0:
        return VerifyResult(tree.tokens, tree.sizes, choices[:, 0])  # no path, and nothing accepted
    above = tree.parents + 1  # [rows, nodes], as block entries
    hit = (choices.gather(1, above) == tree.tokens) & tree.valid()
    return longest_path(tree, hit, choices)


def longest_path(
    tree: Tree, hit: Tensor, choices: Tensor, distance: Tensor | None = None
) -> VerifyResult:
    """Returns the longest path on which every node is a hit; of equally long ones that with the
    smallest sum of distances, then that whose last node has the lowest index.

    Args:
        tree: draft of `rows` rows and `nodes` nodes.
        hit: acceptable nodes, `[rows, nodes]` bool; padding is none.
        choices: the target's choice at each block entry, `[rows, 1 + nodes]`.
        distance: of each node, `[rows, nodes]`, whole and not negative; `None` where at most one
            of siblings is a hit, so that the path is unique.
    """
    if tree.is_chain:
        accepted = hit.long().cumprod(1).sum(1)
        return VerifyResult(_line(tree), accepted, choices.gather(1, accepted[:, None])[:, 0])
    ancestors = tree.ancestors()  # [rows, entries, entries]
    good = torch.cat([torch.ones_like(hit[:, :1]), hit], 1)  # [rows, entries]; the root is good
    whole = (~ancestors | good[:, None]).all(-1)
    depths = ancestors.sum(-1) - 1  # [rows, entries]
    merit = torch.where(whole, depths, -1)
    if distance is not None:  # depth, sum and index in one number, so that no two entries tie
        apart = pad(distance, (1, 0))[:, None]  # [rows, 1, entries]
        sums = torch.where(ancestors & whole[..., None], apart, 0).sum(-1)
        index = torch.arange(merit.shape[1], device=merit.device)
        merit = (merit * (sums.max() + 1) - sums) * merit.shape[1] - index
    last = merit.argmax(1)  # [rows]
    accepted = depths.gather(1, last[:, None])[:, 0]
    on_path = ancestors[torch.arange(len(last), device=last.device), last]
    on_path[:, 0].fill_(False)  # a value that is assigned is uploaded by torch before 2.15
    # Parents precede children, so the entries of the path in ascending order are the path.
    order = torch.where(on_path, 0, 1).argsort(dim=1, stable=True)
    inside = torch.arange(order.shape[1], device=order.device) < accepted[:, None]
    path = torch.where(inside, order, 0)[:, : hit.shape[1]]
    return VerifyResult(path, accepted, choices.gather(1, last[:, None])[:, 0])


@dataclass(frozen=True)
class Guess:
    """A token that a draft has already drawn for the position after its whole chain.

    Attributes:
        tokens: `[rows]`.
        q: what they were drawn from, `[rows, vocab]`.
        known: rows that have a guess, `[rows]` bool.
    """

    tokens: Tensor
    q: Tensor
    known: Tensor


def couple(p: Tensor, guess: Guess, noise: RowNoise, ahead: Tensor) -> Tensor:
    """Draw from `p` so that the draw is the guess as often as possible, `[rows]`.

    `min(1, p(x) / q(x))` accepts the guess, else the draw comes from `norm(max(p - q, 0))`: one
    step of speculative sampling, so the result has distribution `p`.

    Args:
        p: `[rows, vocab]`.
        guess: what was drawn already.
        noise: of the rows.
        ahead: how many places ahead of the noise's the draw is, `[rows]`.
    """
    index, place = guess.tokens[:, None], ahead[:, None]
    draws = noise.uniforms(Purpose.ACCEPT, place)  # [rows, 1]
    accepted = guess.known & (draws * guess.q.gather(1, index) < p.gather(1, index))[:, 0]
    q = torch.where(guess.known[:, None], guess.q, 0.0)
    other = pick(residual(p, q), noise.uniforms(Purpose.TOKEN, place)[:, 0])
    return torch.where(accepted, guess.tokens, other)


def reject_chain(
    tree: Tree, p: Tensor, noise: RowNoise, guess: Guess | None = None
) -> VerifyResult:
    """Returns speculative sampling of a drawn chain (Leviathan et al. 2023, algorithm 1).

    A node `x` is accepted with probability `min(1, p(x) / q(x))`; at the first rejection the
    token comes from `norm(max(p - q, 0))`, behind a fully accepted chain from `p`.

    Args:
        tree: chains with `probs` set.
        p: `[rows, 1 + nodes, vocab]`, fp32, each row of the last axis sums to one.
        noise: of the rows, at their last committed token.
        guess: what the draft drew for the place behind the chain, with which its token is coupled.
    """
    if tree.probs is None or not tree.is_chain:
        raise ValueError("reject_chain needs a chain with its draft probabilities")
    nodes, index = tree.nodes, tree.tokens[..., None]
    # The distribution that node i was drawn from sits at its parent.
    accepted = accepted_run(
        tree,
        p[:, :nodes].gather(2, index)[..., 0],
        tree.probs[:, :nodes].gather(2, index)[..., 0],
        noise,
    )
    p_last = _at(p, accepted)  # [rows, vocab]
    whole = (accepted == tree.sizes)[:, None]
    q_last = torch.where(whole, 0.0, _at(tree.probs, accepted))
    if guess is None:
        bonus = pick_bonus(residual(p_last, q_last), noise, accepted)
        return VerifyResult(_line(tree), accepted, bonus)
    # A row whose chain broke has the broken node for its guess, already refused: q alone is left.
    following = Guess(guess.tokens, torch.where(whole, guess.q, q_last), guess.known & whole[:, 0])
    broken = torch.where(whole, p_last, residual(p_last, q_last))
    return VerifyResult(_line(tree), accepted, couple(broken, following, noise, accepted))


def accepted_run(tree: Tree, p: Tensor, q: Tensor, noise: RowNoise) -> Tensor:
    """Returns how many nodes of each chain are accepted, each with `min(1, p / q)`: `[rows]`.

    Args:
        tree: chains.
        p, q: what target and draft give to each node, `[rows, nodes]`.
        noise: of the rows.
    """
    draws = noise.uniforms(Purpose.ACCEPT, torch.arange(tree.nodes, device=p.device))
    return ((draws * q < p) & tree.valid()).long().cumprod(1).sum(1)


def pick_bonus(weights: Tensor, noise: RowNoise, accepted: Tensor) -> Tensor:
    """Returns the tokens `[rows]` behind `accepted [rows]` drafts, by `weights [rows, vocab]`.

    With the number that a plain draw there takes, so that a row without a draft says the same
    whether or not another row of the batch has one.
    """
    return pick(weights, noise.uniforms(Purpose.TOKEN, accepted[:, None])[:, 0])


def _line(tree: Tree) -> Tensor:
    """Returns the path through whole chains, `[rows, nodes]`."""
    line = torch.arange(1, 1 + tree.nodes, device=tree.tokens.device)
    return line.expand(tree.rows, -1)


def _at(distributions: Tensor, entry: Tensor) -> Tensor:
    """Returns distributions `[rows, entries, vocab]` at `entry [rows]`: `[rows, vocab]`."""
    return distributions[torch.arange(len(entry), device=entry.device), entry]


def reject_tree(tree: Tree, p: Tensor, noise: RowNoise) -> VerifyResult:
    """Returns rejection sampling of trees whose siblings were drawn *without* replacement.

    Siblings are tried in the order of their index. A rejected sibling `x` leaves
    `p <- norm(max(p - q, 0))` and `q <- norm(q with q(x) = 0)`, so the next one is verified against
    what is left (SpecInfer, Miao et al. 2024; without replacement as in Jeon et al. 2024).

    Args:
        tree: trees with `probs` set.
        p: `[rows, 1 + nodes, vocab]`, fp32.
        noise: of the rows, at their last committed token.
    """
    if tree.probs is None:
        raise ValueError("reject_tree needs the draft probabilities of the tree")
    rows, nodes = tree.rows, tree.nodes
    line = torch.arange(nodes, device=p.device)
    # The place of a node, told apart from its siblings by its index.
    draws = noise.uniforms(Purpose.ACCEPT, tree.depths()[:, 1:] - 1, line)  # [rows, nodes]
    valid = tree.valid()
    entry = torch.zeros(rows, 1, dtype=torch.long, device=p.device)  # deepest accepted block entry
    left, draft = p[:, 0], tree.probs[:, 0]  # [rows, vocab]: what both still have to give there
    path = torch.zeros(rows, nodes, dtype=torch.long, device=p.device)
    accepted = torch.zeros_like(entry)
    # Node order is sibling order and parents precede children: one pass visits every decision.
    for node in range(nodes):
        here = slice(node, node + 1)
        token = tree.tokens[:, here]  # [rows, 1]
        tried = valid[:, here] & (tree.parents[:, here] + 1 == entry)
        is_accepted = tried & (draws[:, here] * draft.gather(1, token) < left.gather(1, token))
        refused = tried & ~is_accepted
        left = torch.where(refused, residual(left, draft), left)
        draft = torch.where(refused, _normalised(draft.scatter(1, token, 0.0)), draft)
        entry = torch.where(is_accepted, node + 1, entry)
        path = path.scatter(1, accepted, entry)  # written over until a deeper node is taken
        accepted = accepted + is_accepted.long()
        left = torch.where(is_accepted, p[:, node + 1], left)
        draft = torch.where(is_accepted, tree.probs[:, node + 1], draft)
    accepted = accepted[:, 0]
    path = torch.where(line < accepted[:, None], path, 0)
    return VerifyResult(path, accepted, pick_bonus(left, noise, accepted))


def residual(p: Tensor, q: Tensor) -> Tensor:
    """`norm(max(p - q, 0))` over the last axis; `p` itself where floating point leaves nothing."""
    rest = (p - q).clamp_(min=0.0)
    mass = rest.sum(-1, keepdim=True)
    return torch.where(mass > 0, rest / mass.clamp(min=torch.finfo(p.dtype).tiny), p)


def _normalised(weights: Tensor) -> Tensor:
    mass = weights.sum(-1, keepdim=True)
    return weights / mass.clamp(min=torch.finfo(weights.dtype).tiny)


@pure
def follow_choices(
    tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
) -> VerifyResult:
    """Exact for every draft that does not depend on the target's draws.

    A draw belongs to its row and place: whatever drafted, and however much of it, each token is the
    one that plain decoding draws under the same seed, so sampled runs can be compared token by
    token, as greedy ones are, and as for those rounding may part them.
    """
    return follow(tree, processing.choose(scores, tree, noise))


@pure
def follow_shared_noise(
    tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
) -> VerifyResult:
    """Verifies with Gumbel noise: `argmax(log p + g)` decides every token.

    A draft that was drawn with the noise `g` of its place tends to be that token. Where no row
    draws, the best one decides.
    """
    if not processing.do_sample:
        return follow_choices(tree, scores, processing, noise)
    p = processing.probabilities(scores)  # [rows, 1 + nodes, vocab]
    waits = noise.waiting(Purpose.GUMBEL, tree.depths(), p.shape[-1])
    return follow(tree, first_to_come(p, waits))
