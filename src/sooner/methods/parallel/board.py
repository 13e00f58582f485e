"""Where a draft worker shows its tokens: plain arrays that another process may read."""

from __future__ import annotations

import torch
from torch import Tensor

from ...decoding.stats import Stats
from .arena import Arena, Shape, room, take


class Board:
    """Drafted tokens by original row and position, written by the worker, read by the decoder.

    A token is written before the length that covers it, so a reader that takes the length first
    never sees an unwritten token. Lengths shrink only while the worker handles an update, and the
    reader trusts a row that the update changed only once it is acknowledged.

    Args:
        rows: original rows.
        positions: generated tokens that a row may hold.
        ring: draft distributions kept for each row, the newest ones.
        vocab: size of a distribution; 0 keeps none (greedy decoding).
        arena: memory that both sides see; it may hold anything until `clear`. Without one, the
            arrays are this process's own, and empty.

    Attributes:
        acknowledged: number of the last update that the worker has handled.
        forwards, nanoseconds: draft forwards so far, and the time that they took.
    """

    def __init__(
        self,
        rows: int,
        positions: int,
        ring: int,
        vocab: int,
        arena: Arena | None = None,
    ) -> None:
        shapes = self._shapes(rows, positions, ring, vocab)
        self.tokens, self.lengths, self.counters, self.probs = (take(arena, *one) for one in shapes)

    @staticmethod
    def _shapes(rows: int, positions: int, ring: int, vocab: int) -> list[Shape]:
        ids = torch.long
        arrays: list[Shape] = [((rows, positions), ids), ((rows,), ids), ((4,), ids)]
        return [*arrays, ((rows, ring, vocab), torch.float32)]

    @classmethod
    def room(cls, rows: int, positions: int, ring: int, vocab: int) -> int:
        """Bytes that a board takes of an arena."""
        return sum(room(*told) for told in cls._shapes(rows, positions, ring, vocab))

    def clear(self) -> None:
        """Show nothing, as at the beginning."""
        self.lengths.zero_()
        self.counters.zero_()

    def show(self, row: int, tokens: list[int]) -> None:
        """Replace what row `row` shows."""
        old = int(self.lengths[row])
        same = min(old, len(tokens))
        if same < len(tokens):
            self.tokens[row, same : len(tokens)] = torch.tensor(tokens[same:])
        self.lengths[row] = len(tokens)

    def rewrite(self, row: int, tokens: list[int]) -> None:
        """Replace what row `row` shows where it may differ from before."""
        self.lengths[row] = 0
        self.show(row, tokens)

    def show_probs(self, row: int, position: int, p: Tensor) -> None:
        """Keep what the token at `position` was drawn from, `[vocab]`."""
        self.probs[row, position % self.probs.shape[1]] = p

    def read(self, row: int, start: int, limit: int) -> list[int]:
        """Up to `limit` tokens of row `row` from position `start`."""
        length = int(self.lengths[row])
        return self.tokens[row, start : min(length, start + limit)].tolist()

    def read_probs(self, row: int, start: int, count: int) -> Tensor:
        """What those tokens were drawn from, `[count, vocab]`."""
        places = (start + torch.arange(count)) % self.probs.shape[1]
        return self.probs[row, places]

    @property
    def acknowledged(self) -> int:
        return int(self.counters[0])

    @acknowledged.setter
    def acknowledged(self, update: int) -> None:
        self.counters[0] = update

    def count(self, forwards: int, nanoseconds: int) -> None:
        """Add to the worker's tally."""
        self.counters[2] += nanoseconds
        self.counters[1] += forwards

    @property
    def forwards(self) -> int:
        return int(self.counters[1])

    @property
    def nanoseconds(self) -> int:
        return int(self.counters[2])

    def report(self, stats: Stats) -> None:
        """Put the worker's tally into the statistics of a run."""
        stats.draft_forwards = self.forwards
        stats.draft_forward_seconds = self.nanoseconds / 1e9
        if self.forwards:
            stats.draft_seconds = [stats.draft_forward_seconds / self.forwards]
