"""What drafters have in common whose trees or chains are sized by what rounds measurably give."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from ..decoding.cache import SlotCache
from ..decoding.interface import Drafter, Outcome
from ..decoding.tree import Tree
from .backlog import Backlog
from .context import Context
from .sizing.costs import RoundCost
from .sizing.tree import NOTHING, TreeSize, tell_sizing


class SizedDrafter(Drafter):
    """A drafter that asks its sizing before each draft, and tells it what rounds gave and took.

    Args:
        context: the run.
        sizing: chooses the size of each draft.

    Attributes:
        size: of the pending drafts, and `pending`: the round that judges them.
        levels: that each row may use of them.
    """

    def __init__(self, context: Context, sizing: TreeSize) -> None:
        self.context, self.sizing = context, sizing
        self.size, self.pending = NOTHING, RoundCost()
        self.levels: list[int] = []

    @property
    def has_read(self) -> bool:
        """Whether a draft costs no reading of the prompts any more."""
        return True

    def hear(self, outcome: Outcome) -> None:
        """Keep what a round has committed; called whether or not a draft follows."""

    def read(self) -> None:
        """Read the prompts, if that is still to be done; its time is no drafting."""

    @abstractmethod
    def draft(self, outcome: Outcome) -> Tree:
        """Drafts behind the committed tokens, as `size` and `levels` say."""

    def forwards(self) -> int:
        """Draft forwards, or levels of a tree, of the draft that was just made."""
        return self.size.depth

    def propose(self, outcome: Outcome) -> Tree:
        if not outcome.is_first:
            tell_sizing(self.sizing, self.size, self.levels, self.pending, outcome)
        self.hear(outcome)
        room, rows = max(outcome.budget) - 1, len(outcome.budget)
        self.size = self.sizing.choose(room, self.has_read, rows)
        self.levels = [max(min(self.size.depth, budget - 1), 0) for budget in outcome.budget]
        depth, self.pending = max(self.levels), RoundCost(rows)
        if not depth:
            self.size = NOTHING
            return Tree.empty(rows, outcome.hidden.device)
        self.size = replace(self.size, depth=depth)
        self.read()
        stats = self.context.stats
        start = stats.mark()
        tree = self.draft(outcome)
        spent = stats.between(start, stats.mark())
        self.pending = RoundCost(rows, 1 + tree.nodes, forwards=self.forwards())
        spent.then(self.pending.add_drafting)
        stats.record_drafting(self.forwards(), spent)
        return tree

    def keep_rows(self, rows: list[int]) -> None:
        if self.levels:
            self.levels = [self.levels[row] for row in rows]

    def close(self) -> None:
        self.sizing.observe_call(self.context.stats.tokens / self.context.stats.rows)


class LaunchesParts(Protocol):
    """Launches the parts of a draft (`graphs.PartGraphs`), which read and change nothing on the
    host; results are gone with the next call of their key."""

    def run(
        self,
        key: Hashable,
        function: Callable[..., tuple[Tensor, ...]],
        inputs: Sequence[Tensor],
        held: list[Tensor],
    ) -> tuple[Tensor, ...]: ...


class DraftRunner(Protocol):
    """Runs a draft model over a cache of its own."""

    cache: SlotCache
    graphs: LaunchesParts | None

    @property
    def device(self) -> torch.device: ...

    @property
    def lengths(self) -> list[int]:
        """Committed entries of each row."""

    def keep_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`."""

    def join(self, other: Any) -> None:
        """Take the rows of another runner behind one's own."""


class HeardPrompts(Protocol):
    """What the prefill told of the prompts, until it is read."""

    def keep_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`."""


Runner = TypeVar("Runner", bound=DraftRunner)
Heard = TypeVar("Heard", bound=HeardPrompts)


class ReadingDrafter(SizedDrafter, Generic[Runner, Heard]):
    """A drafter with a cache that holds an entry for each committed token, made from the target's
    own states of it.

    Prompts are read with the first draft, so that a run that stays plain pays nothing for them.

    Args:
        prompt: hears the prefill.

    Attributes:
        runner: from the first draft on; `prompt` until then.
        backlog: what was committed and is not in the cache yet.
    """

    def __init__(self, context: Context, sizing: TreeSize, prompt: Heard) -> None:
        super().__init__(context, sizing)
        self.runner: Runner | None = None
        self.prompt: Heard | None = prompt
        self.backlog = Backlog()

    @abstractmethod
    def make_runner(self, prompt: Heard) -> Runner:
        """A runner that has read the prompts."""

    @property
    def has_read(self) -> bool:
        return self.runner is not None

    def hear(self, outcome: Outcome) -> None:
        self.backlog.add(outcome)

    def read(self) -> None:
        self.ready_runner()

    def ready_runner(self) -> Runner:
        """The runner; at first it reads the prompts."""
        if self.runner is None:
            assert self.prompt is not None
            with self.context.stats.phase("draft_prefill") as spent:
                self.runner = self.make_runner(self.prompt)
            self.prompt, graphs = None, self.context.graphs
            if graphs is not None and self.runner.device == self.context.target.device:
                self.runner.graphs = graphs.parts()
            spent.then(self.sizing.observe_prefill)
        return self.runner

    def keep_rows(self, rows: list[int]) -> None:
        for one in (self.prompt, self.runner, self.backlog):
            if one is not None:
                one.keep_rows(rows)
        super().keep_rows(rows)

    def join(self, other: Self) -> None:
        mine, theirs = self.ready_runner(), other.ready_runner()
        joining = len(theirs.lengths)
        mine.join(theirs)
        self.backlog.join(other.backlog, joining)
        if self.levels:
            self.levels += [0] * joining  # nothing is pending of rows that have just begun

    def close(self) -> None:
        super().close()
        if self.runner is not None:
            self.context.stats.draft_cache_bytes = self.runner.cache.nbytes()
