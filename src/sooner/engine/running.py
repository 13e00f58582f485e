"""Requests of an engine that decode together: they join, take rounds, and end one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from .loop import Decoding
from .prefilling import close_batch
from .request import Ending, Request
from .rows import Reason

if TYPE_CHECKING:
    from .memory.manager import EngineMemory


class RunningBatch:
    """Requests whose prompts are prefilled, and the rows that they decode in.

    Args:
        memory: the engine's, if it counts pages.

    Attributes:
        requests: in the order in which they joined.
        decoding: their rows; `None` while there are none.
    """

    def __init__(self, memory: EngineMemory | None) -> None:
        self.memory = memory
        self.requests: list[Request] = []
        self.decoding: Decoding | None = None

    @property
    def active(self) -> int:
        """Rows that have not ended."""
        return 0 if self.decoding is None else len(self.decoding.rows.active)

    def merge(self, request: Request) -> bool:
        """Lets the rows of a prefilled request decode, unless they need a batch of their own.

        Returns:
            Whether they joined; then `request.prefill` is `None`.

        Raises:
            Exception: the error that broke a merge half-way; neither side can continue.
        """
        rows = request.prefill
        assert rows is not None
        if self.decoding is None:
            if self.memory is not None:
                self.memory.slots.settle(rows)
            self.decoding = rows
        elif request.needs_own_batch:
            return False
        else:
            try:
                request.first = self.decoding.merge(rows)
            except UnsupportedError as refusal:
                request.needs_own_batch = True
                rows.stats.note(str(refusal))
                return False
            if self.memory is not None:  # the batch's first row with a draft may have come now
                self.memory.slots.settle(self.decoding)
        self.requests.append(request)
        request.prefill = None
        return True

    def round(self) -> None:
        """Decodes a round, and counts each request's share of its time."""
        assert self.decoding is not None
        requests = list(self.requests)
        active, began = list(self.decoding.rows.active), time.perf_counter()
        self.decoding.round()
        share = (time.perf_counter() - began) / len(active)
        for request in requests:
            rows = 1 if request.rows == 1 else sum(row in request.batch_rows for row in active)
            request.round_seconds += rows * share

    def output(self) -> list[tuple[float, int]]:
        """Returns, for each request, when it began, and the fewest tokens that a row of it has
        generated since.
        """
        generated = [] if self.decoding is None else self.decoding.rows.generated
        return [
            (request.began, min(len(generated[row]) for row in request.batch_rows))
            for request in self.requests
        ]

    def allocate(self) -> bool:
        """Gives every row pages for a round; `False` if there are not enough for all."""
        if self.memory is None or self.decoding is None or not self.active:
            return True
        block = max(request.method.largest_block() for request in self.requests)
        return self.memory.allocate(self.decoding.session.target.cache, block)

    def preempt(self, request: Request) -> None:
        """Takes a request of one row out of the batch; it waits again."""
        from .memory.preempted import PreemptedRow  # by an engine that counts pages

        assert self.decoding is not None
        row = PreemptedRow.of(self.decoding, request.first, request.preempted)
        self.decoding.drop(request.first)
        self.decoding.release(request.first)
        self.requests.remove(request)
        request.preempt(row)

    def collect(self) -> Iterator[Ending]:
        """Takes out the requests whose last row has ended, or that failed or were cancelled.

        A batch without rows is closed after the last of them.
        """
        batch = self.decoding
        if batch is None:
            return
        for request in list(self.requests):
            rows = request.batch_rows
            error = next((batch.failed[row] for row in rows if row in batch.failed), None)
            if error is not None or request.is_cancelled:
                for row in rows:
                    batch.drop(row)
            if not set(batch.rows.active).isdisjoint(rows):
                continue
            self.requests.remove(request)
            reasons: Reason | list[Reason] = [batch.rows.reasons[row] for row in rows]
            if (strayed := batch.stats.deviation) is not None:
                request.deviations = [strayed.release(row) for row in rows]
            outputs = [batch.release(row) for row in rows]
            yield request, outputs, reasons if error is None else "error", error
        if not batch.rows.active:
            self.decoding = None
            close_batch(batch)
            if self.memory is not None:
                self.memory.slots.keep(batch)

    def abandon(self, error: Exception) -> Iterator[Ending]:
        """Takes every request out, since an error keeps the whole batch from decoding."""
        batch, self.decoding = self.decoding, None
        requests, self.requests = self.requests, []
        assert batch is not None
        for request in requests:
            outputs = [list(batch.rows.generated[row]) for row in request.batch_rows]
            yield request, outputs, "error", error
        close_batch(batch)
