"""Two workers as the simulated cluster predicts them from the run of one, beside what they did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...theory.cluster import Cluster, StageTimes, fitted, simulate
from ...theory.cluster.fit import PAGES
from .settings import ARMS

Data = dict[str, Any]
ONE = "plain-1"
"""The arm whose records the simulation is fitted to."""
WORKER = Cluster(machines=1, accelerators=0, cpus=1, in_flight=1)
"""A worker: a core that reads, drafts, parses and writes."""


def predictions(rows: Sequence[Data], stage_times: Data | None) -> list[Data]:
    """A row for each arm but `ONE`: predicted pages a second, and their error.

    Args:
        rows: of `figures.arm_rows`.
        stage_times: of `ONE`'s run, as `StageTimes.as_dict` gives them.
    """
    rate = {row["arm"]: row["rate"] for row in rows}
    if stage_times is None or ONE not in rate:
        return []
    times = fitted(StageTimes.from_dict(stage_times), WORKER, rate[ONE])
    found = []
    for name, arm in ARMS.items():
        if name in rate and name != ONE and not (arm.is_ray and arm.workers == 1):
            many = simulate(times, replace(WORKER, machines=arm.workers), PAGES * arm.workers)
            found.append(
                {
                    "arm": name,
                    "predicted": many.rate,
                    "measured": rate[name],
                    "error": many.rate / rate[name] - 1,
                    "notes": list(times.notes),
                }
            )
    return found
