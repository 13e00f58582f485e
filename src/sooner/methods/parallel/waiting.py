"""What of a worker's drafts holds, and how long to wait for more."""

from __future__ import annotations

import time
from collections.abc import Callable

from .shared_memory import Board
from .worker import Worker

PATIENCE = 8.0
"""Draft forwards' worth of time that the target waits for a token before it goes on without."""

FIRST = 0.05
"""Seconds that a draft forward is thought to take before one was timed."""

IN_VAIN = 1.5
"""Seconds of waiting, without a sign of life between, after which a worker is waited for no more;
for a draft whose forward is long, `PATIENCE` of its forwards instead."""


class WorkerTimeout:
    """Waits for a worker, until it has hung too long; then only once it moves again.

    One budget serves every wait of a run, the one for its end included. A worker that nobody waits
    for, since drafting does not pay, is noticed by what it leaves unanswered.

    Args:
        worker: whose board is looked at.
        warn: told in one line when patience is at an end.

    Attributes:
        opening: seconds that it gets before its first sign of life, for it has a prompt to read.
    """

    def __init__(self, worker: Worker, warn: Callable[[str], None]) -> None:
        self.worker, self.warn = worker, warn
        self.opening = 0.0
        self._in_vain = 0.0
        self._each: float | None = None
        self._seen = (0, 0)
        self._since = time.perf_counter()

    @property
    def left(self) -> float:
        """Seconds that the worker is waited for yet; 0 until it moves again."""
        if (signs := self._signs()) != self._seen:
            self._seen, self._in_vain, self._since = signs, 0.0, time.perf_counter()
        return max(self._limit - self._in_vain, 0.0)

    @property
    def _limit(self) -> float:
        opening = 0.0 if any(self._seen) else self.opening
        return max(IN_VAIN, PATIENCE * (self._each or FIRST), opening)

    def look(self, update: int) -> None:
        """Notice a worker that has left update number `update` unanswered for too long."""
        if not self.left or self.worker.board.acknowledged >= update:
            return
        if time.perf_counter() - self._since >= self._limit:
            self._give_up()

    def wait(
        self, needed: dict[int, int], update: int, tokens: int, each: float | None = None
    ) -> None:
        """Until each original row shows what is wanted, or time is up.

        Args:
            needed: tokens of each original row.
            update: what must be acknowledged before they count.
            tokens: how many are waited for.
            each: seconds of a draft forward; `None`: not known yet.
        """
        self._each = each
        left = self.left
        if not left:
            return
        seconds = min(PATIENCE * (each or FIRST) * (tokens + 1), left)
        self.worker.wait(needed, update, seconds)
        if self._signs() != self._seen or self.worker.shows(needed, update):
            return
        self._in_vain += seconds
        if self._in_vain >= self._limit:
            self._give_up()

    def close(self) -> None:
        """End the worker: within what is left of the budget, or by force."""
        remainder = self.worker.close(self.left)
        if remainder is not None:
            self.warn(remainder)

    def _give_up(self) -> None:
        self._in_vain = self._limit
        if self.worker.is_usable:
            self.warn("the draft worker does not answer; decoding goes on without it until it does")

    def _signs(self) -> tuple[int, int]:
        """Returns what changes whenever the worker does anything."""
        return self.worker.board.forwards, self.worker.board.acknowledged


class BoardView:
    """Reads a board's rows, each only once the worker has taken the update that changed it.

    Args:
        board: the worker's.

    Attributes:
        number: of the last update.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.number = 0
        self._changed: dict[int, int] = {}  # original row -> update that must be acknowledged

    def commit(self, outputs: dict[int, tuple[int, list[int]]]) -> None:
        """An update is about to be sent: `(place, new tokens)` of each original row.

        Rows whose draft is what was said can be read on; the others show what is thrown away until
        the worker acknowledges the update.
        """
        self.number += 1
        for row, (place, new) in outputs.items():
            if self.board.read(row, place, len(new)) != new:
                self._changed[row] = self.number

    def needed(self, rows: list[int]) -> int:
        """Returns the update that must be acknowledged before all of `rows` can be read."""
        return max(self._changed.get(row, 0) for row in rows)

    def read(self, row: int, place: int, limit: int) -> list[int]:
        """Returns up to `limit` draft tokens of original row `row` from `place`; none while in
        doubt.
        """
        if self.board.acknowledged < self._changed.get(row, 0):
            return []
        return self.board.read(row, place, limit)
