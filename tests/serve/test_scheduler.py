"""The scheduler's policy: order, rows, prefill budget, pages and preemption."""

from __future__ import annotations

import pytest

from sooner.errors import SoonerError
from sooner.serve.jobs import GenerationJob
from sooner.serve.scheduler import Scheduler, SchedulerLimits, Ticket


def job(
    name: str = "", prompt: int = 10, limit: int = 10, arrived: float = 0, due: float | None = None
) -> GenerationJob:
    return GenerationJob(name, {}, prompt, limit, arrived=arrived, deadline=due)


def names(tickets: list[Ticket]) -> list[str]:
    return [ticket.job.id for ticket in tickets]


def filled(limits: SchedulerLimits, *jobs: GenerationJob) -> Scheduler:
    scheduler = Scheduler(limits)
    for one in jobs:
        scheduler.add(one)
    return scheduler


def begin(scheduler: Scheduler) -> list[str]:
    """Plan, and let every job that begins be prefilled at once."""
    plan = scheduler.plan()
    for ticket in plan.admitted:
        scheduler.prefilled(ticket)
    return names(plan.admitted)


def say(scheduler: Scheduler, name: str, tokens: int) -> None:
    (ticket,) = [one for one in scheduler.running if one.job.id == name]
    ticket.said += [0] * tokens


def test_jobs_get_rows_in_the_order_of_their_arrival() -> None:
    scheduler = filled(SchedulerLimits(max_rows=2), job("a"), job("b"), job("c"))
    assert begin(scheduler) == ["a", "b"]
    assert begin(scheduler) == []
    scheduler.end(scheduler.running[0])
    assert begin(scheduler) == ["c"]


def test_an_engine_that_decodes_nothing_together_gets_one_job_at_a_time() -> None:
    scheduler = filled(SchedulerLimits(max_rows=4), job("a"), job("b"))
    scheduler.is_one_by_one = True
    assert begin(scheduler) == ["a"]
    assert begin(scheduler) == []
    scheduler.end(scheduler.running[0])
    assert begin(scheduler) == ["b"]


def test_the_earliest_deadline_goes_first() -> None:
    scheduler = filled(
        SchedulerLimits(max_rows=1, patience=30),
        job("none", arrived=0), job("late", arrived=1, due=50), job("soon", arrived=2, due=9),
    )  # fmt: skip
    assert names(scheduler.waiting) == ["soon", "none", "late"]


def test_a_job_without_a_deadline_is_overtaken_for_its_patience_and_no_longer() -> None:
    scheduler = filled(SchedulerLimits(max_rows=1, patience=30), job("old", arrived=0))
    for second in range(100):
        scheduler.add(job(f"urgent at {second}", arrived=second, due=second + 5))
        (name,) = begin(scheduler)
        if name == "old":
            break
        scheduler.end(scheduler.running[0])
    assert second == 25


def test_nobody_passes_the_first_in_line() -> None:
    limits = SchedulerLimits(max_rows=4, pages=5, page=10)
    scheduler = filled(limits, job("a", 15, 5), job("large", 25, 5), job("small", 5, 1))
    assert begin(scheduler) == ["a"]
    assert begin(scheduler) == []
    scheduler.end(scheduler.running[0])
    assert begin(scheduler) == ["large", "small"]


def test_short_prompts_begin_together_and_long_ones_alone() -> None:
    scheduler = filled(
        SchedulerLimits(prefill_tokens=20), job("long", 100), job("a"), job("b"), job("c")
    )
    assert names(scheduler.plan().admitted) == ["long"]
    assert names(scheduler.plan().admitted) == []
    scheduler.prefilled(scheduler.running[0])
    assert names(scheduler.plan().admitted) == ["a", "b"]
    scheduler.prefilled(scheduler.running[1])
    assert names(scheduler.plan().admitted) == ["c"]


def test_an_urgent_job_overtakes_those_behind_a_long_prefill() -> None:
    scheduler = filled(SchedulerLimits(prefill_tokens=20), job("long", 100), job("a", 15))
    scheduler.plan()
    scheduler.add(job("urgent", due=1))
    assert begin(scheduler) == []
    scheduler.prefilled(scheduler.running[0])
    assert names(scheduler.plan().admitted) == ["urgent"]


def test_rows_take_pages_as_they_grow() -> None:
    scheduler = filled(SchedulerLimits(pages=9, page=10, block=3), job("a", 10, 30))
    begin(scheduler)
    assert scheduler.pages_used == 2
    for said, pages in ((7, 2), (1, 3), (10, 4)):
        say(scheduler, "a", said)
        assert scheduler.plan().preempted == []
        assert scheduler.pages_used == pages
    scheduler.end(scheduler.running[0])
    assert scheduler.pages_used == 0


def test_the_youngest_row_gives_way_when_no_page_is_left() -> None:
    scheduler = filled(
        SchedulerLimits(pages=7, page=10), job("a", 10, 30), job("b", 10, 30), job("c", 10, 30, 1)
    )
    assert begin(scheduler) == ["a", "b"]  # a page is kept for each row that may grow
    scheduler.limits = SchedulerLimits(pages=6, page=10)
    say(scheduler, "b", 10)
    assert scheduler.plan().preempted == []
    say(scheduler, "a", 20)
    plan = scheduler.plan()
    assert (names(plan.preempted), names(plan.admitted)) == (["b"], [])
    assert names(scheduler.waiting) == ["b", "c"]
    assert scheduler.waiting[0].slots == 20
    assert scheduler.waiting[0].pages == 0
    assert scheduler.pages_used == 4


def test_of_rows_with_deadlines_the_least_urgent_gives_way() -> None:
    scheduler = filled(
        SchedulerLimits(pages=8, page=10),
        job("old", 10, 40), job("urgent", 10, 40, arrived=5, due=6),
    )  # fmt: skip
    assert begin(scheduler) == ["urgent", "old"]
    say(scheduler, "urgent", 30)
    say(scheduler, "old", 25)
    assert names(scheduler.plan().preempted) == ["old"]


def test_a_row_that_finds_no_page_may_itself_be_the_youngest() -> None:
    scheduler = filled(SchedulerLimits(pages=6, page=10), job("a", 10, 40), job("b", 10, 40))
    begin(scheduler)
    say(scheduler, "a", 25)
    assert scheduler.plan().preempted == []
    say(scheduler, "b", 10)
    assert names(scheduler.plan().preempted) == ["b"]
    assert scheduler.pages_used == 4


def test_a_preempted_job_waits_until_there_is_room_for_what_it_has_said() -> None:
    scheduler = filled(SchedulerLimits(pages=6, page=10), job("a", 10, 30), job("b", 10, 30))
    begin(scheduler)
    say(scheduler, "a", 18)
    say(scheduler, "b", 21)
    assert scheduler.plan().preempted != []
    assert begin(scheduler) == []
    scheduler.end(scheduler.running[0])
    assert begin(scheduler) == ["b"]
    assert scheduler.pages_used == 4


def test_what_can_never_fit_is_known_beforehand() -> None:
    scheduler = Scheduler(SchedulerLimits(pages=4, page=10, block=5))
    assert scheduler.fits(job(prompt=15, limit=20))
    assert not scheduler.fits(job(prompt=15, limit=21))
    assert Scheduler(SchedulerLimits()).fits(job(prompt=10**9))


def test_deadlines_pass_for_jobs_that_wait_and_for_rows() -> None:
    scheduler = filled(
        SchedulerLimits(max_rows=1), job("row", due=1), job("waits", due=2), job("any"),
    )  # fmt: skip
    begin(scheduler)
    assert names(scheduler.expired(0.9)) == []
    assert names(scheduler.expired(1)) == ["row"]
    assert names(scheduler.expired(99)) == ["waits", "row"]


@pytest.mark.parametrize("name", ["max_rows", "prefill_tokens", "pages", "page", "block"])
def test_limits_below_one_are_refused(name: str) -> None:
    with pytest.raises(SoonerError, match=name):
        SchedulerLimits(**{name: 0})
