"""What a GPU does in the rounds of a text, by torch's profiler: kernels, launches, busy time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from .timing import DeviceClock

LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cuGraphLaunch")
"""Beginnings of the names of the host's calls that launch kernels; a graph is one launch."""


class RoundProfile:
    """The profile of some late rounds of a text.

    Args:
        first: number of the first profiled round; the prefill is round 0.
        rounds: how many rounds are profiled.
    """

    def __init__(self, clock: DeviceClock, first: int, rounds: int) -> None:
        self.clock, self.first, self.rounds = clock, first, rounds
        activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * clock.is_cuda]
        self._profile = profile(activities=activities)
        self._state = "waiting"

    def at_round(self, number: int) -> None:
        """Round `number` begins: start, or stop behind the last one."""
        if number == self.first:
            self.clock.wait()
            self._profile.start()
            self._state = "running"
        elif number == self.first + self.rounds:
            self.stop("done")

    def stop(self, state: str = "cut") -> None:
        """End the profile, if it is running; one that a text's end has cut has no figures."""
        if self._state == "running":
            self.clock.wait()
            self._profile.stop()
            self._state = state

    def figures(self) -> dict[str, float]:
        """The figures of a round; empty for a text that had ended before."""
        if self._state != "done":
            return {}
        return round_figures(self._profile.events() or (), self.rounds)


def round_figures(events: Iterable[Any], rounds: int) -> dict[str, float]:
    """Kernels, launches and busy seconds of the device, each a round.

    Kernels that run beside each other count once in `busy_seconds`. The profiler slows the host
    down and not the device, so an idle share is of rounds that were timed without it.
    """
    launches, spans = 0, list[tuple[float, float]]()
    for event in events:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            if not getattr(event, "is_user_annotation", False):
                spans.append((event.time_range.start, event.time_range.end))
        elif event.name.startswith(LAUNCHES):
            launches += 1
    busy, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        busy += max(last - max(first, end), 0.0)
        end = max(end, last)
    return {
        "kernels": len(spans) / rounds,
        "launches": launches / rounds,
        "busy_seconds": 1e-6 * busy / rounds,
    }
