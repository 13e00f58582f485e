"""Pages through the stages of a cluster, event by event (SimPy)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sooner.checks import check_whole
from sooner.errors import SoonerError

from .machines import Cluster
from .parser import ParserOnCore, SimulatedParser
from .stages import PageTimes, StageTimes

WARM = 0.2
"""Share of the pages, at the beginning and at the end, that the steady rate leaves out."""


@dataclass(frozen=True)
class ClusterRun:
    """What became of a simulated run.

    Attributes:
        pages: in all.
        seconds: from the start to the last page, workers' start included.
        rate: pages a second in the middle of the run.
        use: share of what each resource can do at most that is used at that rate: `cpu`, `parser`,
            `driver`, `storage`. A parser that decodes few pages is busy, but can do more.
        starved: share of the parsers' time, behind their start, in which they had no page.
        seconds_a_page: from its reading to its record, on average.
    """

    pages: int
    seconds: float
    rate: float
    use: dict[str, float]
    starved: float
    seconds_a_page: float

    @property
    def bottleneck(self) -> str:
        """The resource that is used most."""
        return max(self.use, key=lambda name: self.use[name])


def simulate(times: StageTimes, cluster: Cluster, pages: int, seed: int = 0) -> ClusterRun:
    """Parse so many pages on a cluster.

    A driver hands a page to a free core anywhere; it is read and drafted there; the parser that
    is free first takes it; a core of that machine writes it, and the storage takes it. No stage
    hands over more than the next one has room for.

    Args:
        seed: of the draws of `times.pages`.

    Raises:
        SoonerError: `pages` below 1, or SimPy is not installed.
    """
    check_whole("pages", pages)
    try:
        import simpy
    except ImportError as error:
        raise SoonerError(
            "a cluster is simulated by SimPy, which is not installed: pip install "
            "'sooner-lab[scale]'"
        ) from error
    drawn = random.Random(seed).choices(times.pages, k=pages)
    return _Run(simpy.Environment(), times, cluster, drawn).run()


class _Run:
    """One simulation: resources, queues between them, and a process for each worker."""

    def __init__(
        self, environment: Any, times: StageTimes, cluster: Cluster, pages: Sequence[PageTimes]
    ) -> None:
        import simpy

        self.environment, self.times, self.cluster, self.pages = environment, times, cluster, pages
        self.todo = iter(pages)
        self.storage = simpy.Resource(environment)
        self.cpus = [simpy.Resource(environment, cluster.cpus) for _ in range(cluster.machines)]
        self.parsers = [self._parser(number) for number in range(cluster.parsers)]
        self.handed = simpy.Store(environment, capacity=cluster.machines * cluster.cpus)
        self.drafted = simpy.Store(environment, capacity=cluster.parsers * cluster.ahead)
        self.ends: list[float] = []
        self.began: list[float] = []  # of ended pages
        self.cpu_seconds = self.driver_seconds = self.storage_seconds = 0.0
        self.all_done = environment.event()

    def run(self) -> ClusterRun:
        start = self.environment.process
        for _ in range(self.cluster.drivers):
            start(self._hand_out())
        for machine in range(self.cluster.machines):
            for _ in range(self.cluster.cpus):
                start(self._read_and_draft(machine))
        for number, parser in enumerate(self.parsers):
            for _ in range(self.cluster.in_flight):
                start(self._parse(parser, number // self.cluster.on_each))
        self.environment.run(until=self.all_done)
        return self._result()

    def _parser(self, number: int) -> SimulatedParser | ParserOnCore:
        if self.cluster.accelerators:
            return SimulatedParser(self.environment, self.times)
        cores = self.cpus[number // self.cluster.on_each]
        return ParserOnCore(self.environment, self.times, cores, self.cluster.in_flight)

    def _hand_out(self) -> Any:
        for page in self.todo:  # of all drivers
            yield self.environment.timeout(self.times.driver)
            self.driver_seconds += self.times.driver
            yield self.handed.put(page)

    def _read_and_draft(self, machine: int) -> Any:
        while True:
            page = yield self.handed.get()
            began = self.environment.now
            yield from self._on_cpu(machine, page.cpu)
            yield self.drafted.put((page, began))

    def _parse(self, parser: SimulatedParser | ParserOnCore, machine: int) -> Any:
        yield self.environment.timeout(self.times.start)
        while True:
            page, began = yield self.drafted.get()
            yield from parser.parse(page)
            yield from self._on_cpu(machine, page.write)
            yield from self._store()
            self.began.append(began)
            self.ends.append(self.environment.now)
            if len(self.ends) == len(self.pages):
                self.all_done.succeed()

    def _on_cpu(self, machine: int, seconds: float) -> Any:
        if not seconds:
            return
        with self.cpus[machine].request() as turn:
            yield turn
            yield self.environment.timeout(seconds)
        self.cpu_seconds += seconds

    def _store(self) -> Any:
        if self.times.storage is None:
            return
        with self.storage.request() as turn:
            yield turn
            yield self.environment.timeout(1 / self.times.storage)
        self.storage_seconds += 1 / self.times.storage

    def _result(self) -> ClusterRun:
        seconds, cluster = self.environment.now, self.cluster
        cpus = cluster.machines * cluster.cpus
        at_work = max(seconds - self.times.start, 1e-12) * cluster.parsers
        busy = sum(parser.busy for parser in self.parsers)
        on_cores = self.cpu_seconds + (0.0 if cluster.accelerators else busy)
        rate = _rate(self.ends, seconds)
        # The ends of a run, where a worker starts or waits for the last page, are no steady use.
        a_second = rate / len(self.pages)
        gain = self.times.gain(cluster.in_flight)
        full = sum(page.prefill + page.decode / gain for page in self.pages)
        used = {
            "parser": full / cluster.parsers,
            "cpu": on_cores / cpus,
            "driver": self.driver_seconds / cluster.drivers,
            "storage": self.storage_seconds,
        }
        return ClusterRun(
            pages=len(self.pages),
            seconds=seconds,
            rate=rate,
            use={name: min(a_second * share, 1.0) for name, share in used.items()},
            starved=1 - busy / at_work,
            seconds_a_page=sum(
                end - began for end, began in zip(self.ends, self.began, strict=True)
            )
            / len(self.ends),
        )


def _rate(ends: Sequence[float], seconds: float) -> float:
    """Pages a second of the middle; of the whole run where there are too few pages for that."""
    cut = int(WARM * len(ends))
    middle = ends[cut : len(ends) - cut]
    if len(middle) < 2 or middle[-1] <= middle[0]:
        return len(ends) / seconds
    return (len(middle) - 1) / (middle[-1] - middle[0])
