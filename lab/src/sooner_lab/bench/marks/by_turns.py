"""The strongest baseline of parallel drafting: the same pruned draft, target and draft by turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sooner.decoding.interface import Drafter, Prompt
from sooner.decoding.loop import Rule
from sooner.methods import Speculative
from sooner.methods.chain_draft import ChainDrafter
from sooner.methods.context import Context
from sooner.methods.parallel.server import pruned
from sooner.methods.visual_match import views


@dataclass(frozen=True)
class PrunedSpeculative(Speculative):
    """`Speculative` with a draft that reads only some visual tokens.

    Which ones is given: what choosing them takes is not in its time, which favours it.

    Args:
        kept: of each row, indices among the target's visual tokens; `None` is all of them.
    """

    kept: Sequence[Sequence[int]] | None = None

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        drafter, rule = super().build(context)
        if self.kept is None:
            return drafter, rule
        assert isinstance(drafter, ChainDrafter)
        of_kept = PrunedDrafter(drafter.adapter, drafter.inputs, context, drafter.draft_length)
        of_kept.kept = [list(row) for row in self.kept]
        return of_kept, rule


class PrunedDrafter(ChainDrafter):
    """`ChainDrafter` behind a pruned prompt.

    Attributes:
        kept: of each row, indices among the target's visual tokens.
    """

    kept: list[list[int]]

    def prompt(self) -> Prompt:
        context = self.context
        return pruned(
            self.adapter,
            super().prompt(),
            self.kept,
            views(context.target, context.inputs),
            views(self.adapter, self.inputs),
        )
