"""Who is given to the engine next, in which order.

Pure policy: no thread, no clock, no model. The engine's loop asks for a plan before every step and
says what came of it.

- *Order*: earliest deadline first. A job without one counts as due `patience` seconds after it
  came, so it is overtaken by urgent jobs for so long, and then by none that comes later. Nobody
  passes the first in line, not even a job that would fit where that one does not.
- *Rows*: as many jobs as the engine decodes together.
- *Prefill*: a job begins while no prompt is being prefilled, or if all of them together stay
  within the tokens that one step prefills. So short prompts begin together, and behind a long one
  a more urgent job can still take its turn.
- *Memory* is the engine's. It alone knows which pages rows share, lets a job begin when its prompt
  fits, and takes the row of the least urgent one when no page is left. A job that waits in the
  engine, for its first row or for another, keeps its place: only more urgent ones are given to the
  engine meanwhile, which goes by the same order (`Ticket.due` is `Request.priority`).
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from ..checks import check_fields, option
from .jobs import GenerationJob


@dataclass(frozen=True)
class SchedulerLimits:
    """What the engine has room for.

    Args:
        max_rows: jobs that are prefilled or decode at once.
        prefill_tokens: prompt tokens that one step prefills; `None` is any number.
        patience: seconds after which a job without a deadline counts as due.

    Raises:
        SoonerError: a value out of range.
    """

    max_rows: int = option(8, 1)
    prefill_tokens: int | None = option(None, 1)
    patience: float = option(30.0, 0)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(eq=False)
class Ticket:
    """A job's place in line, and later among those that the engine has.

    Attributes:
        job: what was asked.
        number: of its arrival; earlier ones go first where nothing else decides.
        due: when it has to be answered, or counts as due.
        said: ids that it has committed.
        is_waiting: the engine has it, and has no row for it.
        is_prefilling: the engine has it, and it has said nothing since it got its row.
    """

    job: GenerationJob
    number: int
    due: float
    output: list[int] = field(default_factory=list)
    is_waiting: bool = False
    is_prefilling: bool = False

    @property
    def slots(self) -> int:
        """Tokens that its row holds once it is prefilled."""
        return self.job.prompt_tokens + len(self.output)

    @property
    def urgency(self) -> tuple[float, float, int]:
        """Jobs with less of it go first."""
        return self.due, self.job.arrived, self.number


class Scheduler:
    """Jobs that wait, in order, and jobs that the engine has.

    Attributes:
        waiting: most urgent first.
        running: in the order in which the engine got them.
        is_one_by_one: the engine decodes nothing together, so it has one job at a time.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.waiting: list[Ticket] = []
        self.running: list[Ticket] = []
        self.is_serial = False
        self._arrivals = 0

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.running)

    @property
    def rows(self) -> int:
        """Jobs that have a row."""
        return sum(not ticket.is_waiting for ticket in list(self.running))

    def add(self, job: GenerationJob) -> Ticket:
        """Put a job in line."""
        self._arrivals += 1
        due = job.arrived + self.limits.patience if job.deadline is None else job.deadline
        ticket = Ticket(job, self._arrivals, due)
        insort(self.waiting, ticket, key=_urgency)
        return ticket

    def end(self, ticket: Ticket) -> None:
        """A job has ended, wherever it was: its row is free."""
        for line in (self.waiting, self.running):
            if ticket in line:
                line.remove(ticket)

    def prefilled(self, ticket: Ticket) -> None:
        """A row has said its first token since it was given to the job."""
        ticket.is_waiting = ticket.is_prefilling = False

    def preempted(self, ticket: Ticket) -> None:
        """The engine took a job's row, and will prefill it again."""
        ticket.is_prefilling = True

    def expired(self, now: float) -> list[Ticket]:
        """Returns jobs whose deadline has passed; whoever the engine has comes last."""
        tickets = [*self.waiting, *self.running]
        return [
            ticket
            for ticket in tickets
            if ticket.job.deadline is not None and ticket.job.deadline <= now
        ]

    def plan(self) -> list[Ticket]:
        """Jobs to be given to the engine before its next step, in this order."""
        planned: list[Ticket] = []
        while self.waiting and self._may_begin(self.waiting[0]):
            ticket = self.waiting.pop(0)
            ticket.is_prefilling = True
            self.running.append(ticket)
            planned.append(ticket)
        return planned

    def _may_begin(self, ticket: Ticket) -> bool:
        if self.is_serial:
            return not self.running
        if self.rows >= self.limits.max_rows:
            return False
        goes_first = all(
            ticket.urgency < other.urgency for other in self.running if other.is_waiting
        )
        return goes_first and self._may_prefill(ticket)

    def _may_prefill(self, ticket: Ticket) -> bool:
        limit = self.limits.prefill_tokens
        rows = [entry for entry in self.running if entry.is_prefilling and not entry.is_waiting]
        under_way = sum(entry.slots for entry in rows)
        return not under_way or limit is None or under_way + ticket.slots <= limit


def _urgency(ticket: Ticket) -> tuple[float, float, int]:
    return ticket.urgency
