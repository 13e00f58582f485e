"""Any method on a target sharded by tensor parallelism: rank 0 drafts and verifies.

The loop is the same on all ranks. On rank 0 its drafter and rule are the method's own, and what
they return is broadcast; the others use what they receive, and need neither draft, seed nor method.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import StoppingCriteria

from ..engine.acceptance import VerifyResult
from ..engine.interface import Drafter, Outcome, Prompt
from ..engine.loop import Rule
from ..engine.noise import RowNoise
from ..engine.rows import Rows
from ..engine.sampling import Processing
from ..engine.tree import Tree
from ..errors import UnsupportedError
from ..models.ranks import Decisions, Ranks
from .context import Context

HEAD = 2
"""Numbers in front of a tree's: its nodes, and whether it is a chain."""


class Sharded:
    """Holds a method on one of the ranks of a sharded target, in the method's place.

    Args:
        method: on the first rank, the one that decodes; on others whatever was asked for.
        ranks: those of the target.
    """

    def __init__(self, method: Any, ranks: Ranks) -> None:
        self.method, self.ranks = method, ranks
        self.largest = 1

    def largest_block(self) -> int:
        """Returns the first rank's, once there is a drafter."""
        return self.largest

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        """Returns what drafts and verifies on rank 0, and receives drafts and verdicts elsewhere.

        Raises:
            UnsupportedError: the drafts come out of the target, which no rank has as a whole.
            SoonerError: on the other ranks, where there is no drafter on the first.
        """
        inner: tuple[Drafter, Rule | None] = Drafter(), None

        def open_method() -> list[Tensor]:
            nonlocal inner
            if self.method.needs_whole_target:
                raise UnsupportedError(
                    f"{type(self.method).__name__} looks into the target to draft, and each rank "
                    "holds a shard of it; use Speculative or ParallelVLM, or device_map instead of "
                    "tp_plan"
                )
            inner = self.method.build(context)
            return [torch.tensor([self.method.largest_block()])]

        self.largest = int(Decisions(self.ranks, 1).decide(open_method)[0])
        decisions = Decisions(self.ranks, HEAD + 2 * context.rows.batch * self.largest)
        # Eos and length follow from the tokens; a clock, or code of the caller's, may not.
        criteria: Any = [partial(_done, entry, decisions) for entry in context.stopping.criteria]
        context.stopping.criteria = criteria
        drafter = BroadcastDrafter(inner[0], context.rows, decisions)
        return drafter, _rule(drafter, inner[1])


def _done(
    criterion: StoppingCriteria, decisions: Decisions, ids: Tensor, scores: Any, **kwargs: Any
) -> Tensor:
    """Returns what a criterion answers on rank 0, `[rows]` bool."""

    def answer() -> list[Tensor]:
        done = torch.as_tensor(criterion(ids, scores, **kwargs))
        return [done.long().expand(len(ids))]

    return decisions.decide(answer)[: len(ids)].bool().to(ids.device)


def _rule(drafter: BroadcastDrafter, inner: Rule | None) -> Rule:
    """Returns the verdicts of the first rank's rule `inner`, on all ranks: its draws, its draft's
    probabilities."""

    def rule(tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise) -> VerifyResult:
        def verified() -> list[Tensor]:
            assert inner is not None
            assert drafter.pending is not None
            verdict = inner(drafter.pending, scores, processing, noise)
            path = pad(verdict.path, (0, tree.nodes - verdict.path.shape[1]))
            return [verdict.accepted, verdict.bonus, path]

        result = drafter.decisions.decide(verified).to(scores.device)
        drafter.decisions.awaited = True
        rows, nodes = tree.rows, tree.nodes
        accepted, bonus, path = result[: rows * (2 + nodes)].split([rows, rows, rows * nodes])
        return VerifyResult(path.view(rows, nodes), accepted, bonus)

    return rule


class BroadcastDrafter(Drafter):
    """Drafts what rank 0's drafter drafts.

    Args:
        inner: that drafter; on other ranks the base class.
        rows: the batch.
        decisions: the way from the first rank to the others.

    Attributes:
        pending: on the first rank, the draft under verification with its probabilities, which stay
            there since it alone verifies.
    """

    def __init__(self, inner: Drafter, rows: Rows, decisions: Decisions) -> None:
        self.inner, self.rows, self.decisions = inner, rows, decisions
        self.pending: Tree | None = None

    def on_verify_start(self, pending: Tree, rows: Rows) -> None:
        if self.pending is None:
            self.pending = pending  # the first round's, which has no draft
        self.inner.on_verify_start(self.pending, rows)

    def on_prefill(self, prompt: Prompt, start: int, states: Tensor) -> None:
        self.inner.on_prefill(prompt, start, states)

    def begin(self, outcome: Outcome) -> Iterator[None]:
        return self.inner.begin(outcome)

    def propose(self, outcome: Outcome) -> Tree:
        def drafted() -> list[Tensor]:
            tree = self.pending = self.inner.propose(outcome)
            head = torch.tensor([tree.nodes, int(tree.is_chain)], device=tree.tokens.device)
            return [head, tree.sizes, tree.tokens, tree.parents]

        message = self.decisions.decide(drafted)
        self.decisions.awaited = False
        return _tree(message, len(outcome.new), outcome.hidden.device)

    def select_rows(self, rows: list[int]) -> None:
        self.inner.select_rows(rows)

    def close(self) -> None:
        try:
            # Rows that an error ended on this rank go on elsewhere.
            has_failed = "error" in self.rows.reasons.values()
            self.decisions.close(is_over=not (self.rows.active or has_failed))
        finally:
            self.inner.close()


def _tree(packed: Tensor, rows: int, device: torch.device) -> Tree:
    """Returns the trees of a message, without probabilities."""
    nodes, is_chain, *sizes = packed[: HEAD + rows].tolist()
    body = packed[HEAD + rows :][: 2 * rows * nodes].to(device).view(2, rows, nodes)
    return Tree.of(body[0], body[1], sizes, is_chain=bool(is_chain))
