"""Times of a run, on the clock of the device that does the work, without waiting for it.

A GPU is behind the host that feeds it, so the host's clock says nothing about it, and waiting for
it before each look at a clock would take away what running ahead gains. On CUDA a moment is an
event that is put into the stream; the time between two is known once the device has passed both,
which the host asks now and then. On CPUs both are at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch


class Event(Protocol):
    """A moment in a device's stream, as `torch.cuda.Event` has it."""

    def query(self) -> bool: ...

    def elapsed_time(self, end_event: Any) -> float: ...

    def synchronize(self) -> None: ...


Mark = float | Event
"""A moment: seconds of the host's clock, or an event."""


def _cuda_event(device: torch.device) -> Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


EVENTS: dict[str, Callable[[torch.device], Event]] = {"cuda": _cuda_event}
"""By type of device, what puts an event into its current stream; for others the host's clock."""


class Interval:
    """Seconds between two moments, which are known now or later.

    Args:
        seconds: if they are known.
        is_lost: they never will be, for they say nothing about other times of their kind.
    """

    __slots__ = ("_listeners", "_seconds", "is_lost")

    def __init__(self, seconds: float | None = None, is_lost: bool = False) -> None:
        self._seconds, self.is_lost = seconds, is_lost
        self._listeners: list[Callable[[float], object]] = []

    def then(self, listener: Callable[[float], object]) -> None:
        """Calls `listener(seconds)`: at once if they are known, else when they are, if ever."""
        if self.is_lost:
            return
        if self._seconds is None:
            self._listeners.append(listener)
        else:
            listener(self._seconds)

    def end(self, seconds: float) -> None:
        """Records the seconds, and calls the listeners."""
        self._seconds = seconds
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(seconds)


NO_TIME = Interval(0.0)
LOST = Interval(is_lost=True)


class Timeline:
    """Marks moments of a run, and measures the times between them.

    Args:
        device: whose work is timed.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._event = EVENTS.get(device.type)
        self._open: deque[tuple[Event, Event, Interval]] = deque()  # in the order of their ends

    def mark(self) -> Mark:
        """Now: when the device will have done what it was given so far."""
        return time.perf_counter() if self._event is None else self._event(self.device)

    def work_mark(self) -> Mark:
        """Marks a moment as `mark` does, without what others take of the host meanwhile: on CPUs it
        is the processor time of this thread. What threads of an operator beside it work while it
        sleeps is not in it."""
        return time.thread_time() if self._event is None else self._event(self.device)

    def between(self, start: Mark, end: Mark) -> Interval:
        """Returns the time from one moment to a later one, both marked by the same method."""
        if isinstance(start, float) and isinstance(end, float):
            return Interval(end - start)
        assert not isinstance(start, float)
        assert not isinstance(end, float)
        interval = Interval()
        self._open.append((start, end, interval))
        return interval

    def settle(self) -> None:
        """End the intervals that the device has passed; asks, and does not wait."""
        while self._open and self._open[0][1].query():
            start, end, interval = self._open.popleft()
            interval.end(start.elapsed_time(end) / 1e3)

    def close(self) -> None:
        """Wait for the device, and end every interval; when the run is over."""
        if self._open:
            self._open[-1][1].synchronize()
        self.settle()
