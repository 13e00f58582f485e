"""Grouped speculative decoding: a draft is verified by the company it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sooner.checks import option
from sooner.engine.acceptance import (
    VerifyResult,
    accepted_run,
    follow_choices,
    pick_bonus,
    residual,
)
from sooner.engine.interface import Drafter
from sooner.engine.loop import Rule
from sooner.engine.noise import RowNoise
from sooner.engine.sampling import Processing
from sooner.engine.stats.run import RELAXED
from sooner.engine.tree import Tree
from sooner.errors import SoonerError
from sooner.methods import CoupledJacobi, Method
from sooner.methods.context import Context


@dataclass(frozen=True)
class GSD(Method):
    """Runs speculative Jacobi decoding with grouped acceptance (So et al. 2025, arXiv 2508.07747).

    A draft `x` is accepted with probability `min(1, p(C(x)) / q(C(x)))`, where `C(x)` are the
    `group` codes nearest to `x` in the codebook, `x` itself among them, and a group's probability
    is the sum of its codes'. A refused draft is replaced by a token of `norm(max(p - q, 0))`, as
    in exact decoding. Drafts are drawn anew independently, which makes a group of one exactly SJD.

    The groups are fixed ones. The paper's abstract says that it found groups by embedding distance
    alone too weak and regroups at every place; in its authors' program the group of a draft are
    the tokens next to it in the order of the target's scores, those left out whose probability or
    embedding is far from the draft's. So figures of this baseline are not the paper's.

    Under greedy decoding no draft but the target's own choice is accepted.

    Args:
        jacobi_window: places drafted ahead, L.
        group: codes of a group, G.
        init: first draft of a place; see `CoupledJacobi`.

    Raises:
        SoonerError: jacobi_window or group below 1; in a run, a group larger than the codebook, or
            a model without one.
    """

    jacobi_window: int = option(32, 1)
    group: int = option(3, 1)
    init: str | None = None
    name: ClassVar[str] = "gsd"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._drafting()

    def _drafting(self) -> CoupledJacobi:
        return CoupledJacobi(self.jacobi_window, "independent", init=self.init)

    @property
    def mode(self) -> str:
        return RELAXED

    def largest_block(self) -> int:
        return 1 + self.jacobi_window

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        drafter, _ = self._drafting().build(context)
        if not context.processing.do_sample:
            return drafter, follow_choices
        neighbours = _neighbours(context, self.group)

        def verify(
            tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
        ) -> VerifyResult:
            if tree.probs is None:
                return follow_choices(tree, scores, processing, noise)
            return reject_groups(tree, processing.probabilities(scores), neighbours, noise)

        return drafter, verify


def reject_groups(tree: Tree, p: Tensor, neighbours: Tensor, noise: RowNoise) -> VerifyResult:
    """Returns rejection sampling of a drawn chain in which groups are compared instead of tokens.

    Args:
        tree: chains with `probs` set.
        p: `[rows, 1 + nodes, vocab]`, fp32.
        neighbours: ids of each token's group, `[vocab, group]`; a token outside of the codebook is
            its own group, repeated.
        noise: of the rows, at their last committed token.
    """
    assert tree.probs is not None
    nodes = tree.nodes
    members = neighbours[tree.tokens]  # [rows, nodes, group]
    p_group = p[:, :nodes].gather(2, members).sum(-1)  # [rows, nodes]
    q_group = tree.probs[:, :nodes].gather(2, members).sum(-1)
    accepted = accepted_run(tree, p_group, q_group, noise)  # [rows]
    here = torch.arange(tree.rows, device=p.device)
    # Behind a whole chain nothing was drawn, so nothing is taken away.
    whole = accepted == tree.sizes
    q_last = torch.where(whole[:, None], 0.0, tree.probs[here, accepted])
    bonus = pick_bonus(residual(p[here, accepted], q_last), noise, accepted)
    path = torch.arange(1, 1 + nodes, device=p.device).expand(tree.rows, -1)
    return VerifyResult(path, accepted, bonus)


def _neighbours(context: Context, group: int) -> Tensor:
    """Ids of each token's group, `[vocab, group]`."""
    target, grid = context.target, context.target.grid
    codebook = getattr(target, "codebook", None)
    if grid is None or codebook is None:
        raise SoonerError(
            f"GSD: {type(target.model).__name__} has no codebook; use CoupledJacobi, or a model "
            "that draws"
        )
    if group > len(codebook):
        raise SoonerError(f"GSD: group is {group}, the codebook has {len(codebook)} codes")
    nearest = [_nearest(codebook, part, group) for part in _parts(codebook)]
    groups = torch.cat(nearest).to(target.device) + grid.codes[0]  # [codes, group]
    neighbours = torch.arange(target.vocab_size, device=groups.device)[:, None].repeat(1, group)
    neighbours[grid.codes[0] : grid.codes[0] + len(groups)] = groups
    return neighbours


def _parts(codebook: Tensor, size: int = 1024) -> tuple[Tensor, ...]:
    """Returns numbers of the codes, few enough at a time for their distances to all others
    to fit.
    """
    return torch.arange(len(codebook), device=codebook.device).split(size)


def _nearest(codebook: Tensor, part: Tensor, group: int) -> Tensor:
    """The `group` codes nearest to each of `part`, `[part, group]`."""
    distance = torch.cdist(codebook[part].float(), codebook.float())
    # A code belongs to its own group, also beside a twin.
    distance[torch.arange(len(part), device=part.device), part] = -1.0
    return distance.topk(group, largest=False).indices
