"""Stage times made to agree with what the measured worker did."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from sooner.errors import SoonerError

from .machines import Cluster
from .simulation import simulate
from .stages import STAGES, PageTimes, StageTimes

PAGES = 1000
"""Simulated in each step of the fit."""
CLOSE = 1e-3
"""Relative difference of rates at which the fit ends."""


def fitted(times: StageTimes, cluster: Cluster, rate: float) -> StageTimes:
    """Stage times with which one machine does what was measured.

    Stages leave something unexplained: records, leases, and Python between two stages. That is
    added to `prefill`, for which the parser's other pages wait. Where stages explain too much, as
    when several processes shared a core while their seconds were taken, all are shortened alike.

    Args:
        times: from the records of a run of one worker.
        cluster: that worker's machine; `machines` is taken as 1.
        rate: pages a second of that run, its start left out.

    Raises:
        SoonerError: a rate that can't be.
    """
    if not 0 < rate < math.inf:
        raise SoonerError(f"the measured rate is {rate} pages a second; it must be above 0")
    worker = replace(cluster, machines=1)
    alone = replace(times, start=0.0)

    def rate_of(change: Callable[[PageTimes], PageTimes]) -> float:
        pages = tuple(change(page) for page in alone.pages)
        return simulate(replace(alone, pages=pages), worker, PAGES).rate

    if rate_of(lambda page: page) >= rate:
        change = _between(lambda more: _later(more), 0.0, 1 / rate, rate_of, rate)
        remark = "to prefill"
    else:
        change = _between(lambda less: _shorter(1 - less), 0.0, 1.0, rate_of, rate, rises=True)
        remark = "alike"
    pages = tuple(change(page) for page in times.pages)
    before, after = (
        sum(sum(vars(page_times).values()) for page_times in some) for some in (times.pages, pages)
    )
    note = f"fitted to {rate:.4g} pages a second: {(after - before) / len(pages):+.3g} s a page, "
    return replace(times, pages=pages, notes=(*times.notes, note + remark))


def _between(
    make: Callable[[float], Callable[[PageTimes], PageTimes]],
    low: float,
    high: float,
    rate_of: Callable[[Callable[[PageTimes], PageTimes]], float],
    rate: float,
    rises: bool = False,
) -> Callable[[PageTimes], PageTimes]:
    """Bisect for the change that gives `rate`, which falls, or rises, with its size."""
    while True:
        middle = (low + high) / 2
        reached = rate_of(make(middle))
        if abs(reached / rate - 1) < CLOSE or high - low < 1e-9:
            return make(middle)
        if (reached > rate) == rises:
            high = middle
        else:
            low = middle


def _later(more: float) -> Callable[[PageTimes], PageTimes]:
    return lambda page: replace(page, prefill=page.prefill + more)


def _shorter(share: float) -> Callable[[PageTimes], PageTimes]:
    return lambda page: PageTimes(**{name: share * getattr(page, name) for name in STAGES})
