"""A queued request, and its answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from ..tasks.act.observation import Observation

PATIENCE = 10.0
"""Seconds after which a request without a deadline goes before those that have one."""


@dataclass(eq=False)
class ActJob:
    """One queued request.

    Attributes:
        observation: what to act on.
        arrived: when it came.
        deadline: by when it has to be answered; `None` is whenever.
        future: of its `Answer`.
        name: the request's id, for the log.
        timer: fires at the deadline.
    """

    observation: Observation
    arrived: float
    deadline: float | None
    future: asyncio.Future[Answer]
    name: str = ""
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    def settle(self) -> None:
        """The deadline no longer matters: the job is taken, or dropped."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    @property
    def urgency(self) -> float:
        """Jobs with less of it go first."""
        return self.arrived + PATIENCE if self.deadline is None else self.deadline


@dataclass(frozen=True)
class Answer:
    """An action, and how it came about.

    Attributes:
        action: as `Policy.act` gave it.
        queued, computed: seconds.
        rows: requests that were answered together.
        is_late: the deadline passed while it was computed.
    """

    action: Any
    queued: float
    computed: float
    rows: int
    is_late: bool
