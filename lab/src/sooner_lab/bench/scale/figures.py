"""Pages a second and start-up of each arm, from runs of two lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .settings import ARMS

Data = dict[str, Any]


@dataclass(frozen=True)
class ArmRate:
    """What the runs of an arm say.

    Attributes:
        rate: pages a second, the start left out: pages that long runs have more than short ones,
            over the seconds that these take.
        low, high: the same of each long run alone.
        start: seconds of a run that are not of its pages.
        seconds: of a long run, the median.
    """

    rate: float
    low: float
    high: float
    start: float
    seconds: float


def rate_of(runs: Sequence[Data], arm: str) -> ArmRate | None:
    """Of an arm; `None` without runs of two lengths."""
    own = [one for one in runs if one["arm"] == arm]
    lengths = sorted({one["pages"] for one in own})
    if len(lengths) < 2:
        return None
    few, many = lengths[0], lengths[-1]
    short = median(one["seconds"] for one in own if one["pages"] == few)
    long = [one["seconds"] for one in own if one["pages"] == many]
    rates = [(many - few) / max(seconds - short, 1e-9) for seconds in long]
    rate = (many - few) / max(median(long) - short, 1e-9)
    return ArmRate(rate, min(rates), max(rates), short - few / rate, median(long))


def arm_rows(runs: Sequence[Data]) -> list[Data]:
    """A row for each arm that was run at two lengths."""
    rows = []
    for name, arm in ARMS.items():
        found = rate_of(runs, name)
        if found is None:
            continue
        pages = max(one["pages"] for one in runs if one["arm"] == name)
        long = [one for one in runs if one["arm"] == name and one["pages"] == pages]
        kinds = sorted({kind for one in long for kind in one["cpu"]})
        starved = [one["starved"] for one in long if one["starved"] is not None]
        rows.append(
            {
                "arm": name,
                "workers": arm.workers,
                "runs": len(long),
                "pages": pages,
                **vars(found),
                "cpu": {kind: median(one["cpu"].get(kind, 0.0) for one in long) for kind in kinds},
                "bench_cpu": median(one["bench_cpu"] for one in long),
                "starved": median(starved) if starved else None,
            }
        )
    return rows


def ratios(rows: Sequence[Data]) -> list[Data]:
    """Two workers over one, and Ray over the plain command; only of arms that are there."""
    rate = {row["arm"]: row["rate"] for row in rows}
    found = []
    for kind in ("plain", "ray"):
        one, two = rate.get(f"{kind}-1"), rate.get(f"{kind}-2")
        if one and two:
            found.append({"what": "speedup", "arm": f"{kind}-2", "over": f"{kind}-1"})
            found[-1]["value"] = two / one
    for workers in (1, 2):
        plain, ray = rate.get(f"plain-{workers}"), rate.get(f"ray-{workers}")
        if plain and ray:
            found.append({"what": "overhead", "arm": f"ray-{workers}", "over": f"plain-{workers}"})
            found[-1]["value"] = plain / ray - 1
    return found
