"""What the decoder tells a draft worker: arrays that hold what counts now, not a queue of orders.

A queue fills while its reader stands still, and then its writer stands still, too. Here the writer
only ever replaces: a worker that did not look for a thousand rounds finds the newest text and goes
on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .shared_memory import Arena, Shape, room, take

TokenIndices = Sequence[list[int]]
"""For each row, which of the target's visual tokens the draft sees."""

POSTED, UPDATE, PREFILL, STOPPED, AHEAD = range(5)
"""Places in `state`: changes so far, number of the last update, two flags, and one more than the
tokens that a row may be ahead (0: as many as the job says)."""
NOT_YET, ALL, SOME = range(3)
"""Values of the flag `PREFILL`: what is to be prefilled of the visual tokens."""


class Mailbox:
    """State that the decoder writes and a worker reads, by original row.

    Tokens are written before the length that covers them, and everything before the count of
    changes, so a reader that looks at the count first never misses anything.

    Args:
        rows: original rows.
        positions: generated tokens that a row may hold.
        visual: visual tokens of a prompt at most.
        arena: memory that both sides see; it may hold anything until `clear`. Without one, the
            arrays are this process's own, and empty.
    """

    def __init__(self, rows: int, positions: int, visual: int, arena: Arena | None = None) -> None:
        shapes = self._shapes(rows, positions, visual)
        self.state, self.output, self.lengths, self.active, self.tokens, self.counts = (
            take(arena, *shape) for shape in shapes
        )
        if arena is None:
            self.clear()

    @staticmethod
    def _shapes(rows: int, positions: int, visual: int) -> list[Shape]:
        ids = torch.long
        return [
            ((5,), ids),
            ((rows, positions), ids),
            ((rows,), ids),
            ((rows,), torch.bool),
            ((rows, visual), torch.int32),
            ((rows,), ids),  # how many those are
        ]

    @classmethod
    def room(cls, rows: int, positions: int, visual: int) -> int:
        """Returns bytes that a mailbox takes of an arena."""
        return sum(room(*shape) for shape in cls._shapes(rows, positions, visual))

    def clear(self) -> None:
        """Sets everything as at the beginning: nothing said, all rows active."""
        self.state.zero_()
        self.lengths.zero_()
        self.active.fill_(True)

    # The decoder's side: none of these waits for anything.

    def prefill(self, tokens: TokenIndices | None) -> None:
        """Prefill on the kept visual tokens of each row; `None`: on all of them."""
        for row, indices in enumerate(tokens or ()):
            self.tokens[row, : len(indices)] = torch.tensor(indices, dtype=torch.int32)
            self.counts[row] = len(indices)
        self.state[PREFILL] = ALL if tokens is None else SOME
        self._post()

    def commit(self, number: int, new: Mapping[int, tuple[int, list[int]]]) -> None:
        """Update `number`: of each original row, where its new tokens stand, and those tokens."""
        for row, (place, tokens) in new.items():
            end = min(place + len(tokens), self.output.shape[1])
            if end > place:
                self.output[row, place:end] = torch.tensor(tokens[: end - place])
                self.lengths[row] = end
        self.state[UPDATE] = number
        self._post()

    def select_rows(self, rows: Sequence[int]) -> None:
        """Lets only these original rows go on."""
        active = torch.zeros_like(self.active)
        active[list(rows)] = True
        self.active.copy_(active)
        self._post()

    def limit_ahead(self, tokens: int | None) -> None:
        """From the next update on, a row may be `tokens` ahead; `None`: as many as the job says."""
        self.state[AHEAD] = 0 if tokens is None else 1 + tokens

    def stop(self) -> None:
        """The run is over."""
        self.state[STOPPED] = 1
        self._post()

    def _post(self) -> None:
        self.state[POSTED] += 1

    # The worker's side.

    @property
    def posted(self) -> int:
        """Changes so far."""
        return int(self.state[POSTED])

    @property
    def update(self) -> int:
        """Returns number of the newest update."""
        return int(self.state[UPDATE])

    @property
    def ahead(self) -> int | None:
        """What `limit_ahead` was told."""
        return int(self.state[AHEAD]) - 1 if self.state[AHEAD] else None

    @property
    def may_prefill(self) -> bool:
        return int(self.state[PREFILL]) != NOT_YET

    @property
    def is_stopped(self) -> bool:
        return bool(self.state[STOPPED])

    def visual(self) -> TokenIndices | None:
        """Returns what `prefill` was told."""
        if int(self.state[PREFILL]) != SOME:
            return None
        return [self.tokens[row, :count].tolist() for row, count in enumerate(self.counts.tolist())]

    def read(self, row: int, start: int) -> list[int]:
        """Returns what original row `row` has said from position `start` on."""
        return self.output[row, start : int(self.lengths[row])].tolist()
