"""The target's states of committed tokens, until a draft model is fed with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..engine.interface import Outcome


@dataclass(frozen=True)
class CommittedTokens:
    """Tokens that were committed one after the other, with the target's state before each.

    Attributes:
        states: `[rows, entries, hidden]`.
        tokens: `[rows, entries]`.
        sizes: real entries of each row, the first ones, `[rows]`.
        counts: the same on the host.
    """

    states: Tensor
    tokens: Tensor
    sizes: Tensor
    counts: list[int]

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


class Backlog:
    """Collects committed tokens that a draft model has not been fed yet."""

    def __init__(self) -> None:
        self._rounds: list[CommittedTokens] = []

    def add(self, outcome: Outcome) -> None:
        """Adds what a round committed."""
        self._rounds.append(CommittedTokens.of(outcome))

    def select_rows(self, rows: list[int]) -> None:
        """Keeps the rows `rows` and drops the others."""
        self._rounds = [entry.select_rows(rows) for entry in self._rounds]

    def merge(self, other: Backlog, rows: int) -> None:
        """Appends the empty backlog of `rows` rows that have just begun."""
        assert not other._rounds
        self._rounds = [entry.with_empty(rows) for entry in self._rounds]

    def take(self) -> CommittedTokens:
        """Returns all committed tokens, and empties the backlog."""
        rounds, self._rounds = self._rounds, []
        return CommittedTokens.joined(rounds)
