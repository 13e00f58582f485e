"""Simulated parsers: on an accelerator, where pages under way share rounds, or on a core."""

from __future__ import annotations

import heapq
import itertools
from typing import Any

from .stages import PageTimes, StageTimes


class SimulatedParser:
    """One accelerator. Pages that decode share its rounds evenly (processor sharing).

    While `k` pages decode, each gets on at `gain(k) / k` of the speed that it has alone. A prefill
    takes the accelerator for itself: nobody decodes meanwhile.

    Work is counted on a clock of its own, `served`: seconds that a page which was there from the
    start would have been decoded by now. A page that comes at `served = v` with `d` seconds of
    decoding ends at `v + d`, whatever comes and goes between.

    Args:
        environment: SimPy's.
        times: for `gain`.

    Attributes:
        busy: seconds in which it prefilled or decoded.
        underway: pages that it has.
    """

    def __init__(self, environment: Any, times: StageTimes) -> None:
        import simpy

        self.environment, self.times = environment, times
        self.busy = 0.0
        self.underway = 0
        self._prefilling = simpy.Resource(environment)
        self._is_prefilling = False
        self._served = 0.0
        self._since = 0.0
        self._ends: list[tuple[float, int, Any]] = []  # (served at its end, number, event)
        self._number = itertools.count()
        self._version = 0

    def parse(self, page: PageTimes) -> Any:
        """A process that ends with the page."""
        self.underway += 1
        with self._prefilling.request() as turn:
            yield turn
            self._advance()
            self._is_prefilling = True
            self._version += 1  # decoding stops meanwhile
            yield self.environment.timeout(page.prefill)
            self._advance()
            self._is_prefilling = False
        if page.decode:
            ended = self.environment.event()
            end = self._served + page.decode
            heapq.heappush(self._ends, (end, next(self._number), ended))
            self._plan()
            yield ended
        else:
            self._plan()
        self.underway -= 1

    @property
    def _speed(self) -> float:
        """Returns the speed of `served` against the clock."""
        count = len(self._ends)
        return self.times.gain(count) / count if count and not self._is_prefilling else 0.0

    def _advance(self) -> None:
        """Count the work since the last change."""
        now = self.environment.now
        if self._is_prefilling or self._ends:
            self.busy += now - self._since
        self._served += (now - self._since) * self._speed
        self._since = now

    def _plan(self) -> None:
        """Wake up when the next page ends, unless something changes before."""
        self._advance()
        self._version += 1
        if not self._ends or self._is_prefilling:
            return
        left = max(self._ends[0][0] - self._served, 0.0) / self._speed
        self.environment.process(self._wake(left, self._version))

    def _wake(self, seconds: float, version: int) -> Any:
        yield self.environment.timeout(seconds)
        if version != self._version:
            return
        self._advance()
        first = self._ends[0][0]
        self._served = max(self._served, first)
        while self._ends and self._ends[0][0] <= first:
            heapq.heappop(self._ends)[2].succeed()
        self._plan()


class ParserOnCore:
    """A parser of a machine without accelerators: it takes a core from reading and OCR.

    One page has the core at a time, for its prefill and its share of decoding.

    Args:
        environment: SimPy's.
        times: for `gain`.
        cores: of its machine, SimPy's resource.
        in_flight: pages that share rounds.

    Attributes:
        busy: seconds in which it had the core.
        underway: pages that it has.
    """

    def __init__(self, environment: Any, times: StageTimes, cores: Any, in_flight: int) -> None:
        import simpy

        self.environment, self.cores = environment, cores
        self.gain = times.gain(in_flight)
        self.busy = 0.0
        self.underway = 0
        self._turns = simpy.Resource(environment)

    def parse(self, page: PageTimes) -> Any:
        """A process that ends with the page."""
        self.underway += 1
        took = page.prefill + page.decode / self.gain
        with self._turns.request() as turn:
            yield turn
            with self.cores.request() as core:
                yield core
                yield self.environment.timeout(took)
        self.busy += took
        self.underway -= 1
