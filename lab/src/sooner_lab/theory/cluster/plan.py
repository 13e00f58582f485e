"""Pages a day by machines: where a cluster saturates, how long a job takes, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sooner.checks import check_whole
from sooner.errors import SoonerError

from .machines import Cluster
from .simulation import ClusterRun, simulate
from .stages import StageTimes

DAY, HOUR = 86_400, 3_600

EACH = 8
"""Pages simulated for each place of each parser, at least: its steady state, beyond its start."""

SATURATED = 0.9
"""Pages a second of so many machines over that many times those of one: below, more machines are
no longer worth their price."""


@dataclass(frozen=True)
class ScaleRow:
    """One size of the cluster.

    Attributes:
        machines, accelerators: how many, in all.
        rate: pages a second in the steady state.
        efficiency: that of a machine, over the best of a machine in clusters up to this size. A
            small cluster wastes more: where pages differ, many machines even each other out.
        bottleneck: resource that is busiest.
        use: share of each that is busy.
        starved: share of the parsers' time without a page.
        hours: of the whole job, workers' start included.
        cost: of these hours.
    """

    machines: int
    accelerators: int
    rate: float
    efficiency: float
    bottleneck: str
    use: dict[str, float]
    starved: float
    hours: float
    cost: float

    @property
    def pages_a_day(self) -> float:
        return self.rate * DAY


@dataclass(frozen=True)
class Scale:
    """Rows by machines, and the largest cluster that is still worth its price.

    Attributes:
        pages: of the job.
        saturates: machines of the first row whose efficiency is below `SATURATED`; `None`: none.
    """

    pages: int
    rows: tuple[ScaleRow, ...]
    saturates: int | None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        rows = [{**asdict(row), "pages_a_day": row.pages_a_day} for row in self.rows]
        return {"pages": self.pages, "rows": rows, "saturates": self.saturates}


def scale(
    times: StageTimes, cluster: Cluster, machines: Sequence[int], pages: int, seed: int = 0
) -> Scale:
    """Simulate clusters of several sizes on one job.

    Of a large job only a part is simulated, up to `EACH` pages for each place of a parser: the
    rest is done at the steady rate of that part. Workers are simulated as started: what is drafted
    while they start would make a short part look faster than the job. Their start is added.

    Args:
        cluster: the machines; their number is replaced.
        machines: how many, rising.
        pages: of the whole job.

    Raises:
        SoonerError: no size, sizes that don't rise, or no page.
    """
    check_whole("pages", pages)
    if not machines or list(machines) != sorted(set(machines)):
        raise SoonerError(f"machines are {list(machines)}; give rising numbers from 1 up")
    rows: list[ScaleRow] = []
    best = 0.0
    for count in machines:
        some = replace(cluster, machines=count)
        run = simulate(replace(times, start=0.0), some, min(pages, _enough(some)), seed)
        best = max(best, run.rate / count)
        rows.append(_row(some, run, pages, times.start, best))
    beyond = [row.machines for row in rows if row.efficiency < SATURATED]
    return Scale(pages, tuple(rows), min(beyond, default=None))


def _enough(cluster: Cluster) -> int:
    return EACH * cluster.parsers * max(cluster.in_flight, 2) + 100


def _row(cluster: Cluster, run: ClusterRun, pages: int, start: float, best: float) -> ScaleRow:
    seconds = start + run.seconds + (pages - run.pages) / run.rate
    return ScaleRow(
        machines=cluster.machines,
        accelerators=cluster.parsers,
        rate=run.rate,
        efficiency=run.rate / cluster.machines / best,
        bottleneck=run.bottleneck,
        use=run.use,
        starved=run.starved,
        hours=seconds / HOUR,
        cost=seconds / HOUR * cluster.machines * cluster.price,
    )
