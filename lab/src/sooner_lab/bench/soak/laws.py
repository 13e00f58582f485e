"""The laws that a soaked server is held to, and whether it kept them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .server import ServerLook
from .settings import MAX_SLOPE, SPARE, WARM, WINDOWS
from .slope import medians, slope

Counts = Sequence[tuple[str, str, int]]
"""What was done, how it ended, and how often."""


@dataclass(frozen=True)
class Law:
    """One law.

    Attributes:
        law: in words.
        holds: whether it was kept.
        told: the figures.
    """

    law: str
    holds: bool
    report: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SoakEvents:
    """What was seen of a soak.

    Attributes:
        counts: of everything that clients did.
        broken: what they met that must not be, in words; some of it.
        looks: at the server under load.
        before, after: it, idle, before the load and behind it.
        busy: seconds until no row and no request was left behind the load.
        kills: processes killed while they decoded.
        ends: of the streams that were under way when the server was told to stop.
        exit_code: of the server.
        left: processes that it left.
        faults: lines of its log.
    """

    counts: Counts
    broken: list[str]
    looks: list[ServerLook]
    before: ServerLook
    after: ServerLook
    busy: float | None
    kills: int
    ends: list[str]
    exit_code: int | None
    left: list[int]
    faults: list[str]

    def count(self, end: str) -> int:
        """How often something ended so."""
        return sum(times for _, kind_end, times in self.counts if kind_end == end)


def growth(looks: Sequence[ServerLook], of_children: bool = False) -> dict[str, float]:
    """MiB a minute behind the first sixth of a load: `slope`, and its interval `low` to `high`."""
    warm = looks[len(looks) // WARM :]
    points = [(look.seconds / 60, look.children_rss if of_children else look.rss) for look in warm]
    value, low, high = slope(medians(points, WINDOWS))
    return {"slope": value, "low": low, "high": high}


def judge(seen: SoakEvents) -> list[Law]:
    """Every law."""
    acts = sum(times for _, _, times in seen.counts)
    broken, answered = seen.count("broken"), seen.count("answered")
    killed = seen.count("400 decoder killed")
    grown = growth(seen.looks)
    before, after = seen.before, seen.after
    return [
        Law(
            "every request gets its whole answer, or a refusal that the documentation has; every "
            "answer is the one of the same request alone, bit for bit",
            not broken and answered > 0,
            f"{acts} acts of clients, {answered} answers, {broken} broken",
        ),
        Law(
            "files are lost with a killed decoder only, no more than it and its queue had",
            seen.kills > 0 and killed <= 2 * seen.kills,
            f"{seen.kills} kills, {killed} requests refused for them",
        ),
        Law(
            "idle, no row is taken and nobody waits",
            seen.busy is not None,
            "never" if seen.busy is None else f"{seen.busy:.1f} s after the last client",
        ),
        Law(
            "idle, no descriptor, thread or process is left over",
            after.descriptors <= before.descriptors + SPARE
            and after.threads <= before.threads + SPARE
            and after.children <= max(before.children, 2),
            f"descriptors {before.descriptors} → {after.descriptors}, threads {before.threads} → "
            f"{after.threads}, processes {before.children} → {after.children}",
        ),
        Law(
            f"once warm, memory grows by {MAX_SLOPE:g} MiB a minute at most (upper end)",
            grown["high"] <= MAX_SLOPE,
            f"{grown['slope']:+.2f} MiB a minute ({grown['low']:+.2f} to {grown['high']:+.2f})",
        ),
        Law(
            "told to stop in the middle of streams, it ends them, exits with 0 and leaves nothing",
            seen.exit_code == 0
            and bool(seen.ends)
            and all(end == "answered" for end in seen.ends)
            and not seen.left,
            f"streams: {', '.join(seen.ends) or 'none'}; exit code {seen.exit_code}; "
            f"{len(seen.left)} processes left",
        ),
        Law(
            "its log has no fault",
            not seen.faults,
            f"{len(seen.faults)} lines",
        ),
    ]
