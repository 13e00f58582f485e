"""One step on the device: forward, verify, commit. Nothing in it waits for the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from .acceptance import Rule, VerifyResult
from .interface import CommittedBlock
from .noise import RowNoise
from .rows import RowTensor, cut_rows
from .runner import Forward, ModelRunner
from .sampling import Processing
from .tree import Tree

STOP_IDS = 4
"""Stop ids of a row that there is room for at least, so that a row with more moves no tensor."""


class RowState:
    """What a step knows of each row; tensors on the target's device, which stay where they are.

    Args:
        noise: random numbers; this state has places of its own, which a step moves on.
        stop_ids: ids that end a row.
        limit: tokens that a row may generate.
        max_rows: rows that there is room for.

    Attributes:
        roots: the last committed token, which the next step forwards, `[rows]`.
        noise: random numbers, at the number of tokens said.
        stop_ids: ids that end a row, padded with -1, `[rows, ids]`.
        budget: tokens that a row may still generate, `[rows]`.
    """

    def __init__(
        self, noise: RowNoise, stop_ids: Sequence[int], limit: int, max_rows: int = 1
    ) -> None:
        rows, device = len(noise.seeds), noise.seeds.device
        none = torch.zeros(rows, dtype=torch.long, device=device)
        width = max(STOP_IDS, 1 << (len(stop_ids) - 1).bit_length())
        listed = [*stop_ids, *[-1] * (width - len(stop_ids))]
        ids = torch.tensor([listed], dtype=torch.long, device=device).expand(rows, -1)
        each = (none, noise.seeds, noise.places, ids, torch.full_like(none, limit))
        self._each = [RowTensor(tensor, max_rows) for tensor in each]
        self.use(rows)

    def use(self, rows: int) -> None:
        """Let the first so many rows be in use."""
        self.roots, seeds, places, self.stop_ids, self.budget = (
            tensor.use(rows) for tensor in self._each
        )
        self.noise = RowNoise(seeds, places)

    @contextmanager
    def using(self, rows: int) -> Iterator[None]:
        """Let the first so many rows be in use meanwhile."""
        have = len(self.roots)
        self.use(rows)
        try:
            yield
        finally:
            self.use(have)

    @property
    def buffers(self) -> list[Tensor]:
        """What stays where it is as long as no row needs more room."""
        return [tensor.whole for tensor in self._each]

    def move_to(self, other: RowState) -> None:
        """Lie where another state did, whose rows are gone."""
        other.select_rows(torch.empty(0, dtype=torch.long, device=self.roots.device))
        other.merge(self)
        self._each = other._each
        self.use(len(other.roots))

    def select_rows(self, rows: Tensor) -> None:
        """Drop every row but those with these indices, `[kept]`."""
        for tensor in self._each:
            tensor.select_rows(rows)
        self.use(len(rows))

    def merge(self, other: RowState) -> None:
        """Put the rows of `other` behind these."""
        widest = max(self.stop_ids.shape[1], other.stop_ids.shape[1])
        ids = [
            pad(item, (0, widest - item.shape[1]), value=-1)
            for item in (self.stop_ids, other.stop_ids)
        ]
        if widest > self.stop_ids.shape[1]:
            self._each[3] = RowTensor(ids[0], len(self._each[3].whole))
        values = (other.roots, other.noise.seeds, other.noise.places, ids[1], other.budget)
        for item, joining in zip(self._each, values, strict=True):
            item.merge(joining)
        self.use(len(self.roots) + len(other.roots))


@dataclass(frozen=True)
class VerifiedBlock:
    """What a step has decided, for every row.

    Attributes:
        report: what the host reads, in one tensor; see `read`. `[rows, columns]`.
        scores: processed scores of the block, `[rows, 1 + nodes, vocab]`.
        committed: what the rows say and keep.
    """

    report: Tensor
    scores: Tensor
    committed: CommittedBlock

    @property
    def depth(self) -> int:
        """Returns the most entries of a path, the root not counted."""
        return self.committed.path.shape[1]


@dataclass(frozen=True)
class RowReport:
    """The part of a report that belongs to one row, on the host.

    Attributes:
        is_broken: its new token can't be trusted: scores are no numbers.
        nodes, levels: of the draft that was verified.
        ended: an end-of-sequence id or the limit ended it.
        path: accepted block entries, the root's 0 first, as far as the row says them.
        new: the tokens it says.
    """

    is_broken: bool
    nodes: int
    levels: int
    ended: bool
    path: list[int]
    new: list[int]


def verify(
    tree: Tree,
    scores: Tensor,
    rule: Rule,
    processing: Processing,
    state: RowState,
) -> VerifiedBlock:
    """Apply the rule, and cut at each row's end; moves `state` on.

    Args:
        tree: the draft.
        scores: processed, of its block, `[rows, 1 + nodes, vocab]`.
    """
    verdict = rule(tree, scores, processing, state.noise)
    if not tree.nodes:
        return _judge_plain(tree, scores, verdict, processing, state)
    drafted = tree.tokens.gather(1, (verdict.path - 1).clamp(min=0))
    committed, ended = cut_rows(
        drafted, verdict.accepted, verdict.bonus, state.stop_ids, state.budget
    )
    # Where the last token is a draft's own, the row ended within what was accepted.
    last = pad(drafted, (0, 1)).scatter(1, verdict.accepted[:, None], verdict.bonus[:, None])
    state.roots.copy_(last.gather(1, (committed - 1).clamp(min=0)[:, None])[:, 0])
    broken = _broken(processing, scores, verdict, tree)
    levels = tree.sizes if tree.is_chain else tree.levels()
    head = [broken, tree.sizes, levels, ended.long(), verdict.accepted, committed]
    report = torch.cat([torch.stack(head, 1), verdict.path, drafted, verdict.bonus[:, None]], 1)
    state.budget.sub_(committed)
    processing.count(last, committed)
    state.noise.places.add_(1 + verdict.accepted)
    entries = 1 + torch.minimum(verdict.accepted, committed)
    return VerifiedBlock(report, scores, CommittedBlock(last, verdict.path, entries))


def _judge_plain(
    tree: Tree, scores: Tensor, verdict: VerifyResult, processing: Processing, state: RowState
) -> VerifiedBlock:
    """`verify` where nothing was drafted: the same in a fifth of the operations."""
    counts, token = tree.sizes + 1, verdict.bonus  # a token each
    ended = (token[:, None] == state.stop_ids).any(1) | (state.budget <= 1)
    broken = processing.broken(scores[:, 0])
    report = [broken, tree.sizes, tree.sizes, ended, tree.sizes, counts, token]
    state.roots.copy_(token)
    state.budget.sub_(1)
    processing.count(token[:, None], counts)
    state.noise.places.add_(1)
    whole = torch.cat([column[:, None] for column in report], 1)  # which promotes the flags
    return VerifiedBlock(whole, scores, CommittedBlock(token[:, None], verdict.path, counts))


def step(
    target: ModelRunner,
    tree: Tree,
    rule: Rule,
    processing: Processing,
    state: RowState,
    score: Callable[[Tensor], Tensor],
    on_forward: Callable[[], None] = lambda: None,
) -> tuple[VerifiedBlock, Forward]:
    """Forward the roots and the draft behind them, verify it, and commit what is accepted.

    Args:
        score: processes logits, `[rows, 1 + nodes, vocab]`.
        on_forward: called between the forward and what follows, to measure it.
    """
    forward = target.forward_tree(state.roots, tree)
    on_forward()
    verified = verify(tree, score(forward.logits), rule, processing, state)
    committed = verified.committed
    target.commit_path(committed.path, committed.entries, is_chain=tree.is_chain)
    return verified, forward


def read(report: Tensor, depth: int) -> list[RowReport]:
    """Returns the host's copy of a report, in one transfer.

    Args:
        report: `[rows, columns]`.
        depth: columns of its paths.
    """
    rows = []
    for broken, nodes, levels, ended, accepted, count, *rest in report.tolist():
        new = [*rest[depth : depth + accepted], rest[-1]][:count]
        path = [0, *rest[: min(accepted, count)]]
        rows.append(RowReport(bool(broken), nodes, levels, bool(ended), path, new))
    return rows


def _broken(processing: Processing, scores: Tensor, verdict: VerifyResult, tree: Tree) -> Tensor:
    """Returns rows whose new token can't be trusted: its scores, or what their draft was drawn
    from, are no numbers. `[rows]`, 0 or 1.
    """
    ends = pad(verdict.path, (1, 0))
    last = ends.gather(1, verdict.accepted[:, None])[..., None]  # [rows, 1, 1]
    broken = processing.broken(scores.gather(1, last.expand(-1, -1, scores.shape[2]))[:, 0])
    if tree.probs is not None:
        # A softmax spreads a NaN everywhere; a node was drawn from what stands at its parent.
        drawn = tree.probs[..., 0].isnan().gather(1, tree.parents + 1)
        broken = broken | (drawn & tree.valid()).any(1)
    return broken.long()
