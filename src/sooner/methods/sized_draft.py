"""What drafters have in common whose trees or chains are sized by what rounds measurably give."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..engine.cache import SlotCache
from ..engine.interface import Drafter, Outcome, Prompt
from ..engine.rows import in_use
from ..engine.tree import Tree
from ..errors import UnsupportedError
from .context import Context
from .controller import RoundCost
from .tree_size import NOTHING, TreeSize

if TYPE_CHECKING:
    from ..engine.graphs.drafts import PartGraphs

Part = Callable[..., tuple[Tensor, ...]]
"""A function of tensors that a drafter launches at once."""


class SizedDrafter(Drafter):
    """A drafter whose `sizing` chooses a size before each draft, and learns what rounds give.

    Args:
        context: the run.
        sizing: chooses the size of each draft.

    Attributes:
        size: of the pending drafts, and `pending`: the round that verifies them.
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

    def record(self, outcome: Outcome) -> None:
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
            self.sizing.observe_round(self.size, self.levels, self.pending, outcome)
        self.record(outcome)
        rows = len(outcome.budget)
        self.size, self.levels = self.sizing.plan(outcome, self.has_read)
        self.pending = RoundCost(rows)
        if not self.size.depth:
            return Tree.empty(rows, outcome.hidden.device)
        self.read()
        stats = self.context.stats
        start = stats.mark()
        tree = self.draft(outcome)
        spent = stats.between(start, stats.mark())
        self.pending = RoundCost(rows, 1 + tree.nodes, forwards=self.forwards())
        spent.then(self.pending.add_drafting)
        stats.record_drafting(self.forwards(), spent)
        return tree

    def select_rows(self, rows: list[int]) -> None:
        if self.levels:
            self.levels = [self.levels[row] for row in rows]

    def close(self) -> None:
        self.sizing.observe_call(self.context.stats.tokens / self.context.stats.rows)


class DraftRunner:
    """Runs a trained drafter over a cache of its own, whose slot `i` holds what is at position `i`.

    Args:
        drafter: a head or a block drafter.
        adapter: the target's adapter, for its embedding and LM head.
        layers: of the cache, and `capacity`: slots a row, the largest block included.
        options: what the drafter's functions depend on beside inputs and weights.

    Attributes:
        graphs: launch its parts, whose results are gone with the next of their kind.
    """

    def __init__(
        self, drafter: Any, adapter: Any, layers: int, capacity: int, options: Hashable = None
    ) -> None:
        self.drafter, self.adapter, self.options = drafter, adapter, options
        self.cache = SlotCache(layers, capacity)
        self.graphs: PartGraphs | None = None
        self._is_launching = False
        self.resize(capacity)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.drafter.device
        return device

    @property
    def lengths(self) -> list[int]:
        return self.cache.lengths

    @property
    def buffers(self) -> list[Tensor]:
        """What stays where it is as long as no row needs more room."""
        return [*self.cache.buffers, *self._rotation]

    def resize(self, capacity: int) -> None:
        """Have so many slots a row; nothing has been written yet."""
        self.cache.capacity = capacity
        line = torch.arange(capacity, device=self.device)
        self._rotation = self.drafter.rotation(line[None])  # [1, 1, slots, dim] each

    def using(self, rows: int) -> AbstractContextManager[None]:
        """Let the first `rows` rows be in use meanwhile, those behind the batch's inactive."""
        return in_use(self, rows, len(self.lengths))

    def use(self, rows: int) -> None:
        self.cache.use(rows)

    def select_rows(self, rows: list[int]) -> None:
        self.cache.select_rows(rows)

    def merge(self, other: Any) -> None:
        """Put the rows of `other` behind these."""
        self.cache.merge(other.cache)
        if other.cache.capacity > self._rotation[0].shape[2]:
            self._rotation = other._rotation

    def launch(
        self, key: Hashable, run: Part, *inputs: Tensor, is_ragged: bool = False, entries: int = 0
    ) -> tuple[Tensor, ...]:
        """`run(*inputs)`, a part of a draft, as a graph where those are wanted; what is launched
        within a part is of that part.

        Args:
            key: tells parts apart whose inputs have the same shapes.
            is_ragged: the inputs tell which entries are real; see `graphs.PartGraphs`.
            entries: that have to fit behind the committed ones.
        """
        if self._is_launching:
            return run(*inputs)
        if entries:
            self.cache.reserve(entries)
        self.cache.lengths_on(self.device)
        self._is_launching = True
        try:
            if self.graphs is None or not self.cache.slot_layers[0].is_initialized:
                return run(*inputs)
            return self.graphs.run(self, key, run, inputs, is_ragged)
        finally:
            self._is_launching = False

    def at(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The rotation of positions `slots [rows or 1, entries]`; those of padding may lie beyond
        the last one."""
        cos, sin = self._rotation
        slots = slots.clamp(max=cos.shape[2] - 1)
        return cos[0, 0][slots][:, None], sin[0, 0][slots][:, None]


@dataclass(frozen=True)
class CommittedTokens:
    """Tokens that were committed one after the other, with the target's state before each."""

    states: Tensor  # [rows, entries, hidden]
    tokens: Tensor  # [rows, entries]
    sizes: Tensor  # [rows], real entries of each row, the first ones
    counts: list[int]  # the same on the host

    @staticmethod
    def of(outcome: Outcome) -> CommittedTokens:
        """Returns what a round committed; copies, since steps write their states to one place."""
        counts = [len(path) for path in outcome.path]
        width, committed, hidden = max(counts), outcome.committed, outcome.hidden
        # Behind what is accepted a path may hold anything.
        path = pad(committed.path, (1, 0))[:, :width].clamp(0, hidden.shape[1] - 1)
        path = path.to(hidden.device)
        states = hidden.gather(1, path[..., None].expand(-1, -1, hidden.shape[2]))
        return CommittedTokens(states, committed.tokens[:, :width], committed.entries, counts)

    def select_rows(self, rows: list[int]) -> CommittedTokens:
        """Returns the tokens of some rows."""
        index = torch.tensor(rows, device=self.sizes.device)
        states, counts = self.states[index.to(self.states.device)], [self.counts[r] for r in rows]
        return CommittedTokens(states, self.tokens[index], self.sizes[index], counts)

    def with_empty(self, rows: int) -> CommittedTokens:
        """Returns these tokens, and so many empty rows after them."""
        return CommittedTokens(
            pad(self.states, (0, 0, 0, 0, 0, rows)),
            pad(self.tokens, (0, 0, 0, rows)),
            pad(self.sizes, (0, rows)),
            self.counts + [0] * rows,
        )

    @staticmethod
    def joined(rounds: list[CommittedTokens]) -> CommittedTokens:
        """Returns the tokens of several rounds, with their padding moved to the end."""
        if len(rounds) == 1:
            return rounds[0]
        counts = [sum(each) for each in zip(*(entry.counts for entry in rounds), strict=True)]
        tokens = torch.cat([entry.tokens for entry in rounds], 1)
        states = torch.cat([entry.states for entry in rounds], 1)
        line = torch.arange(tokens.shape[1], device=tokens.device)
        inside = torch.cat(
            [line[: entry.tokens.shape[1]] < entry.sizes[:, None] for entry in rounds], 1
        )
        order = torch.where(inside, 0, 1).argsort(dim=1, stable=True)[:, : max(counts)]
        index = order.to(states.device)[..., None].expand(-1, -1, states.shape[2])
        sizes = torch.stack([entry.sizes for entry in rounds]).sum(0)
        return CommittedTokens(states.gather(1, index), tokens.gather(1, order), sizes, counts)


class PromptStates:
    """Holds the prompts' embeddings, positions and states, as the prefill passes them."""

    def __init__(self) -> None:
        self.embeds = self.positions = self.next_position = torch.empty(0)
        self.lengths: list[int] = []
        self._states: list[Tensor] = []

    def add(self, prompt: Prompt, start: int, states: Tensor, embeds: Tensor | None = None) -> None:
        """Keep the states of the prompt's tokens from `start` on, and the head's own `embeds [rows,
        width, hidden]` in place of the prompt's."""
        if not start:
            self.embeds = prompt.embeds if embeds is None else embeds
            self.lengths, self._states = prompt.lengths, []
            self.positions, self.next_position = prompt.positions, prompt.next_position
        self._states.append(states)

    @property
    def width(self) -> int:
        return self.embeds.shape[1]

    def select_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`."""
        index = torch.tensor(rows, device=self.embeds.device)
        self.embeds = self.embeds[index]
        self._states = [states[index.to(states.device)] for states in self._states]
        self.lengths = [self.lengths[row] for row in rows]
        index = index.to(self.positions.device)
        self.positions = self.positions.index_select(-2, index)
        self.next_position = self.next_position.index_select(-1, index)

    def entries(self) -> tuple[Tensor, Tensor, list[int]]:
        """Returns embeddings of the token behind each state but the last, the states, and their
        number; the last prompt token's entry begins what was generated, see `CommittedTokens`.

        Raises:
            UnsupportedError: a prefill context took tokens out on the way.
        """
        states = torch.cat(self._states, 1) if len(self._states) > 1 else self._states[0]
        if states.shape[1] != self.width:
            raise UnsupportedError(
                f"the drafter needs the states of all {self.width} prompt tokens, but a prefill "
                f"context left {states.shape[1]} of them; leave the context"
            )
        return self.embeds[:, 1:], states[:, :-1], [length - 1 for length in self.lengths]


Runner = TypeVar("Runner", bound=DraftRunner)


class ReadingDrafter(SizedDrafter, Generic[Runner]):
    """A drafter with a cache that holds an entry for each committed token, made from the target's
    states of it. Prompts are read with the first draft: a plain run pays nothing for them.

    Attributes:
        runner: from the first draft on; `prompt` until then.
        backlog: what rounds have committed and is not in the cache yet.
    """

    def __init__(self, context: Context, sizing: TreeSize) -> None:
        super().__init__(context, sizing)
        self.runner: Runner | None = None
        self.prompt: PromptStates | None = PromptStates()
        self.backlog: list[CommittedTokens] = []

    @abstractmethod
    def make_runner(self, prompt: PromptStates) -> Runner:
        """A runner with room for the prompts and what is decoded behind them."""

    @abstractmethod
    def read_prompt(self, runner: Runner, prompt: PromptStates) -> None:
        """Let a runner read the prompts."""

    @property
    def has_read(self) -> bool:
        return self.runner is not None

    def record(self, outcome: Outcome) -> None:
        self.backlog.append(CommittedTokens.of(outcome))

    def take(self) -> CommittedTokens:
        """Returns all committed tokens that have not been fed, and empties the backlog."""
        rounds, self.backlog = self.backlog, []
        return CommittedTokens.joined(rounds)

    def read(self) -> None:
        self.ready_runner()

    def ready_runner(self, joins: bool = False) -> Runner:
        """Returns the runner; at first it reads the prompts. It `joins` if its rows are about to
        join those of another."""
        if self.runner is None:
            assert self.prompt is not None
            graphs, target = self.context.graphs, self.context.runner
            with self.context.stats.phase("draft_prefill") as spent:
                runner = self.make_runner(self.prompt)
                if graphs is not None and runner.device == self.context.target.device:
                    rows = None if joins else len(self.prompt.lengths)
                    if not joins:  # or its rows are copied at once
                        runner.cache.max_rows = target.cache.max_rows
                    runner = cast(Runner, graphs.parts(runner, rows))
                self.read_prompt(runner, self.prompt)
            self.runner, self.prompt = runner, None
            spent.then(self.sizing.observe_prefill)
        return self.runner

    def select_rows(self, rows: list[int]) -> None:
        for part in (self.prompt, self.runner):
            if part is not None:
                part.select_rows(rows)
        self.backlog = [entry.select_rows(rows) for entry in self.backlog]
        super().select_rows(rows)

    def merge(self, other: Self) -> None:
        mine, other_runner = self.ready_runner(), other.ready_runner(joins=True)
        joining = len(other_runner.lengths)
        mine.merge(other_runner)
        if other_runner.graphs is not None:
            other_runner.graphs.release(other_runner)
        assert not other.backlog
        self.backlog = [entry.with_empty(joining) for entry in self.backlog]
        if self.levels:
            self.levels += [0] * joining  # nothing is pending of rows that have just begun

    def close(self) -> None:
        super().close()
        if self.runner is not None:
            self.context.stats.draft_cache_bytes = self.runner.cache.nbytes()
            if self.runner.graphs is not None:
                self.runner.graphs.release(self.runner)
