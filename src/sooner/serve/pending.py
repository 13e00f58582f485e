"""What the engine's loop knows of a job that has not ended."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field

from .jobs import DraftStats, GenerationJob, JobTimes, RequestLike
from .scheduler import Ticket


@dataclass(eq=False)
class PendingJob:
    """A job that has not ended.

    Attributes:
        ticket: its place in line or among the rows.
        seed: of its draws.
        request: the engine's, while it has a row.
        reported_at: when it was last told tokens; when it came, before the first ones.
        is_lost: its client can't be told anything.
        failure: what its own tokens ran into.
        first: when it was told its first token.
        has_begun: it has had a row.
        preemptions: how often it lost it.
        cached, drafts, drafted, accepted, mode: see `JobUsage` and `DraftStats`.
    """

    ticket: Ticket
    seed: int
    request: RequestLike | None = None
    is_lost: bool = False
    failure: Exception | None = None
    reported_at: float = 0.0
    first: float | None = None
    has_begun: bool = False
    preemptions: int = 0
    cached: int = 0
    drafts: int = 0
    drafted: int = 0
    accepted: Counter[int] = field(default_factory=Counter)
    mode: str = "exact"

    @property
    def job(self) -> GenerationJob:
        return self.ticket.job

    def stats(self) -> DraftStats:
        """Returns what was drafted for it so far."""
        accepted = dict(sorted(self.accepted.items()))
        steps = sum(accepted.values())
        return DraftStats(self.mode, steps, self.drafts, self.drafted, accepted)

    def times(self, now: float) -> JobTimes:
        """When things happened to it, as of now."""
        arrived = self.job.arrived
        first = None if self.first is None else self.first - arrived
        return JobTimes(first, self.reported_at - arrived, now - arrived)


def seed_of(job: GenerationJob) -> int:
    """Returns what keys a job's draws, 63 bits: its seed and the number of the choice.

    The first choice has the seed itself, so it says what `sooner.generate` says under it.
    """
    seed = job.sampling.seed
    if seed is None:
        return secrets.randbits(63)
    mixed = (seed + job.choice * 0x9E3779B97F4A7C15) % (1 << 64)
    if job.choice:
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = ((mixed ^ (mixed >> shift)) * factor) % (1 << 64)  # SplitMix64's finaliser
        mixed ^= mixed >> 31
    return mixed % (1 << 63)
