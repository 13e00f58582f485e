"""Who decodes next: which waiting job begins, and which row gives way when no page is left.

Pure policy: no thread, no clock, no model. The engine's loop asks for a plan before every step and
says what came of it.

- *Order*: earliest deadline first. A job without one counts as due `patience` seconds after it
  came, so it is overtaken by urgent jobs for so long, and then by none that comes later. Nobody
  passes the first in line, not even a job that would fit where that one does not.
- *Rows*: as many jobs as the engine decodes together.
- *Prefill*: a job begins while no prompt is being prefilled, or if all of them together stay
  within the tokens that one step prefills. So short prompts begin together, and behind a long one
  a more urgent job can still take its turn.
- *Pages*: a row holds pages for its prompt, what it has said and one block ahead. It takes more as
  it grows; if none is left, the least urgent row (the youngest, where there are no deadlines) is
  preempted: it goes back in line with the ids that it has committed, and is prefilled from them
  later. A job alone always fits, so the most urgent one always advances.
"""

from __future__ import annotations

import math
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
        pages: of the key-value cache; `None` is any number.
        page: slots of a page.
        block: slots that a round writes for a row at most: its last token and its draft.
        patience: seconds after which a job without a deadline counts as due.

    Raises:
        SoonerError: a value out of range.
    """

    max_rows: int = option(8, 1)
    prefill_tokens: int | None = option(None, 1)
    pages: int | None = option(None, 1)
    page: int = option(256, 1)
    block: int = option(1, 1)
    patience: float = option(30.0, 0)

    def __post_init__(self) -> None:
        check_fields(self)

    def pages_of(self, slots: int) -> int:
        """Pages of a row that has committed `slots` and is to decode another round."""
        return math.ceil((slots + self.block) / self.page)

    def pages_at_most(self, job: GenerationJob) -> int:
        """Pages that a job holds if it says all that it may."""
        return self.pages_of(job.prompt_tokens + job.max_tokens)


@dataclass(eq=False)
class Ticket:
    """A job's place in line, and later among the rows.

    Attributes:
        job: what was asked.
        number: of its arrival; earlier ones go first where nothing else decides.
        due: when it has to be answered, or counts as due.
        said: ids that it has committed; with the prompt, what a preempted job is prefilled from.
        pages: that it holds; 0 while it waits.
        is_prefilling: it has a row, and has said nothing since it got it.
    """

    job: GenerationJob
    number: int
    due: float
    said: list[int] = field(default_factory=list)
    pages: int = 0
    is_prefilling: bool = False

    @property
    def slots(self) -> int:
        """Tokens that its row holds once it is prefilled."""
        return self.job.prompt_tokens + len(self.said)

    @property
    def urgency(self) -> tuple[float, float, int]:
        """Jobs with less of it go first."""
        return self.due, self.job.arrived, self.number


@dataclass(frozen=True)
class StepPlan:
    """What has to happen before the next step, in this order.

    Attributes:
        preempted: rows to be freed; their tickets wait again.
        admitted: tickets that get a row.
    """

    preempted: list[Ticket]
    admitted: list[Ticket]


class Scheduler:
    """Jobs that wait, in order, and jobs that have a row.

    Attributes:
        waiting: most urgent first.
        running: in the order in which they got their rows.
        is_one_by_one: the engine decodes nothing together, so one job has a row at a time.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.waiting: list[Ticket] = []
        self.running: list[Ticket] = []
        self.is_one_by_one = False
        self._arrivals = 0

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.running)

    @property
    def pages_used(self) -> int:
        return sum(ticket.pages for ticket in self.running)

    def fits(self, job: GenerationJob) -> bool:
        """Whether a job could say all that it may with the whole cache to itself."""
        pages = self.limits.pages
        return pages is None or self.limits.pages_at_most(job) <= pages

    def add(self, job: GenerationJob) -> Ticket:
        """Put a job in line; it has to fit."""
        self._arrivals += 1
        due = job.arrived + self.limits.patience if job.deadline is None else job.deadline
        ticket = Ticket(job, self._arrivals, due)
        self._wait(ticket)
        return ticket

    def end(self, ticket: Ticket) -> None:
        """A job has ended, wherever it was: its row and pages are free."""
        for line in (self.waiting, self.running):
            if ticket in line:
                line.remove(ticket)
        self._free(ticket)

    def prefilled(self, ticket: Ticket) -> None:
        """A row has said its first token since it was given to the job."""
        ticket.is_prefilling = False

    def expired(self, now: float) -> list[Ticket]:
        """Jobs whose deadline has passed; whoever has a row comes last."""
        held = [*self.waiting, *self.running]
        return [one for one in held if one.job.deadline is not None and one.job.deadline <= now]

    def plan(self) -> StepPlan:
        """Preempt rows until the others can decode a round, or let waiting jobs begin.

        Never both: a page that a preempted row gave up is not for a job behind it.
        """
        preempted = self._grow()
        return StepPlan(preempted, [] if preempted else self._admit())

    def _grow(self) -> list[Ticket]:
        """Give each row the pages of its next round, most urgent first."""
        preempted: list[Ticket] = []
        for ticket in sorted(self.running, key=_urgency):
            if ticket in preempted:
                break  # so are all that are less urgent
            while (lacks := self._need(ticket) - ticket.pages) > self._spare:
                victim = max(self.running, key=_urgency)
                self._preempt(victim)
                preempted.append(victim)
                if victim is ticket:
                    break
            else:
                ticket.pages += lacks
        return preempted

    def _admit(self) -> list[Ticket]:
        admitted: list[Ticket] = []
        rows = 1 if self.is_one_by_one else self.limits.max_rows
        while self.waiting and len(self.running) < rows:
            ticket = self.waiting[0]
            pages = self._need(ticket)
            if pages + self._to_come() > self._spare or not self._may_prefill(ticket):
                break
            ticket.pages, ticket.is_prefilling = pages, True
            self.running.append(self.waiting.pop(0))
            admitted.append(ticket)
        return admitted

    def _to_come(self) -> int:
        """A page for each row that may still grow, or else who begins now is preempted at once."""
        most = self.limits.pages_at_most
        return sum(ticket.pages < most(ticket.job) for ticket in self.running)

    def _may_prefill(self, ticket: Ticket) -> bool:
        limit = self.limits.prefill_tokens
        under_way = sum(one.slots for one in self.running if one.is_prefilling)
        return not under_way or limit is None or under_way + ticket.slots <= limit

    def _preempt(self, ticket: Ticket) -> None:
        self.running.remove(ticket)
        self._free(ticket)
        self._wait(ticket)

    def _wait(self, ticket: Ticket) -> None:
        insort(self.waiting, ticket, key=_urgency)

    def _free(self, ticket: Ticket) -> None:
        ticket.pages, ticket.is_prefilling = 0, False

    def _need(self, ticket: Ticket) -> int:
        """Pages that a ticket's row holds in the next round; none are counted without a limit."""
        return 0 if self.limits.pages is None else self.limits.pages_of(ticket.slots)

    @property
    def _spare(self) -> float:
        pages = self.limits.pages
        return math.inf if pages is None else pages - self.pages_used


def _urgency(ticket: Ticket) -> tuple[float, float, int]:
    return ticket.urgency
