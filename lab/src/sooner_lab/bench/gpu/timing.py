"""Times of a device: events on CUDA, the host's clock elsewhere; medians with intervals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from sooner.engine.graphs.recorder import capture

Run = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """A median and how sure it is.

    Attributes:
        seconds: the median.
        interval: between two of the samples; holds the true median with 95 % of chance, if there
            are 6 samples or more.
        samples: how many there are.
    """

    seconds: float
    interval: tuple[float, float]
    samples: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        """Summarises one sample or more.

        The interval is that of the sign test: between the samples of rank k and n + 1 - k, where
        fewer than k of n fair coins show heads with a chance of 2.5 % at most.
        """
        ordered, count = sorted(samples), len(samples)
        rank, chance = 0, 0.0
        while (chance := chance + math.comb(count, rank) / 2**count) <= 0.025:
            rank += 1
        low = max(rank - 1, 0)
        return cls(median(ordered), (ordered[low], ordered[count - 1 - low]), count)

    def as_dict(self) -> dict[str, Any]:
        """Return `seconds`, `interval` and `samples`, ready for JSON."""
        return {**vars(self), "interval": list(self.interval)}


class Deadline:
    """When a section has to be over."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds, below 0 when it is over."""
        return self.end - time.monotonic()


class DeviceClock:
    """Marks in the order of a device's work, and the seconds between them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_cuda = device.type == "cuda"

    def mark(self) -> Any:
        """A moment in the device's queue; nothing waits for it."""
        if not self.is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def between(self, first: Any, last: Any) -> float:
        """Seconds between two marks, which must have passed."""
        return float(first.elapsed_time(last)) / 1000 if self.is_cuda else last - first

    def gaps(self, marks: Sequence[Any]) -> list[float]:
        """Seconds from each mark to the next."""
        self.wait()
        return [self.between(*pair) for pair in pairwise(marks)]

    def seconds(self, run: Run) -> float:
        """Returns the seconds of one call that finds the device idle."""
        self.wait()
        start = self.mark()
        run()
        stop = self.mark()
        self.wait()
        return self.between(start, stop)

    def interleaved(
        self, arms: Mapping[str, Run], repeats: int, warm_ups: int = 1, calls: int = 1
    ) -> dict[str, dict[str, Any]]:
        """Time every arm once a round, so that a drift hits all alike.

        Args:
            repeats: timed rounds.
            warm_ups: calls of each arm before, which compile what must be compiled.
            calls: of what is timed in each arm's call.

        Returns:
            Of each arm `Timing.as_dict` of one call, or `missing`, the error that it ended with,
            which leaves the others alone.
        """
        failures: dict[str, str] = {}
        samples: dict[str, list[float]] = {name: [] for name in arms}
        for turn in range(warm_ups + repeats):
            for name, run in arms.items():
                if name in failures:
                    continue
                try:
                    seconds = self.seconds(run)
                except Exception as error:
                    failures[name] = report(error)
                    self.free()
                    continue
                if turn >= warm_ups:
                    samples[name].append(seconds / calls)
        return {
            name: {"missing": failures[name]} if name in failures else Timing.of(times).as_dict()
            for name, times in samples.items()
        }

    def free(self) -> None:
        """Give unused memory of the device back."""
        if self.is_cuda:
            torch.cuda.empty_cache()


def replayed(
    run: Callable[[int], Any], calls: int, clock: DeviceClock, pool: Any
) -> tuple[Run, str]:
    """A function that makes `calls` calls in a row as one CUDA graph, and how it makes them.

    So a kernel of some microseconds is timed, not the launching of it. Where a graph can't be
    captured, and on CPUs, the calls are made one by one.

    Args:
        run: takes the number of the call.
        pool: of graphs that never run at once and whose results nobody reads: they share memory.

    Returns:
        The function, and `graph` or the reason why it is none.
    """

    def run_calls() -> None:
        for call in range(calls):
            run(call)

    if not clock.is_cuda:
        return run_calls, "no CUDA"
    side = torch.cuda.Stream(clock.device)
    side.wait_stream(torch.cuda.current_stream(clock.device))
    with torch.cuda.stream(side):  # compiles, and makes handles that a capture may not make
        for call in range(min(calls, 2)):
            run(call)
    torch.cuda.current_stream(clock.device).wait_stream(side)
    clock.wait()
    try:
        graph = capture(run_calls, side, pool)
    except Exception as error:
        return run_calls, report(error)

    def replay(inputs: Any = run) -> None:  # what a graph reads must stay where it is
        graph.replay()

    return replay, "graph"


def report(error: BaseException) -> str:
    """An error in one line."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {text[:300]}"
