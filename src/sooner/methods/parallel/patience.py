"""Waiting for a worker that may be slow: a little, and not again and again for nothing."""

from __future__ import annotations

from collections.abc import Callable

from .worker import Worker

PATIENCE = 8.0
"""Draft forwards' worth of time that the target waits for a token before it goes on without."""
FIRST = 0.05
"""Seconds that a draft forward is thought to take before one was timed."""
IN_VAIN = 3.0
"""Seconds of waiting, without a sign of life between, after which a worker is waited for no more. A
busy machine stalls a worker for less."""


class Patience:
    """Waits for tokens, until the worker has hung too long; then only once it moves again.

    Args:
        worker: whose board is looked at.
        warn: told in one line when patience is at an end.
    """

    def __init__(self, worker: Worker, warn: Callable[[str], None]) -> None:
        self.worker, self.warn = worker, warn
        self._in_vain = 0.0
        self._seen = (-1, -1)

    def wait(
        self, wanted: dict[int, int], update: int, tokens: int, each: float | None = None
    ) -> None:
        """Until each original row shows what is wanted, or time is up.

        Args:
            wanted: tokens of each original row.
            update: what must be acknowledged before they count.
            tokens: how many are waited for.
            each: seconds of a draft forward; `None`: not known yet.
        """
        if (signs := self._signs()) != self._seen:
            self._seen, self._in_vain = signs, 0.0
        elif self._in_vain >= IN_VAIN:
            return
        seconds = PATIENCE * (each or FIRST) * (tokens + 1)
        self.worker.wait(wanted, update, seconds)
        if self._signs() != signs or self.worker.shows(wanted, update):
            return
        self._in_vain += seconds
        if self._in_vain >= IN_VAIN and self.worker.is_usable:
            self.warn("the draft worker does not answer; decoding goes on without it until it does")

    def _signs(self) -> tuple[int, int]:
        """What changes whenever the worker does anything."""
        return self.worker.board.forwards, self.worker.board.acknowledged
