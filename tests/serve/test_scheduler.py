"""The scheduler's policy: order, rows, prefill budget, and those that wait in the engine."""

from __future__ import annotations

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
    for job in jobs:
        scheduler.add(job)
    return scheduler


def begin(scheduler: Scheduler) -> list[str]:
    """Plan, and let every job that begins be prefilled at once."""
    planned = scheduler.plan()
    for ticket in planned:
        scheduler.prefilled(ticket)
    return names(planned)


def test_jobs_get_rows_in_the_order_of_their_arrival() -> None:
    scheduler = filled(SchedulerLimits(max_rows=2), job("a"), job("b"), job("c"))
    assert begin(scheduler) == ["a", "b"]
    assert begin(scheduler) == []
    scheduler.end(scheduler.running[0])
    assert begin(scheduler) == ["c"]


def test_a_job_without_a_deadline_is_overtaken_for_its_patience_and_no_longer() -> None:
    scheduler = filled(SchedulerLimits(max_rows=1, patience=30), job("old", arrived=0))
    for second in range(100):
        scheduler.add(job(f"urgent at {second}", arrived=second, due=second + 5))
        (name,) = begin(scheduler)
        if name == "old":
            break
        scheduler.end(scheduler.running[0])
    assert second == 25


def test_a_job_that_waits_in_the_engine_is_passed_by_more_urgent_jobs_only() -> None:
    """It may wait there for its first row, or for another."""
    scheduler = filled(SchedulerLimits(max_rows=4), job("a"), job("large", 25), job("small", 5, 1))
    assert begin(scheduler) == ["a", "large", "small"]
    large = scheduler.running[1]
    large.is_waiting = True
    scheduler.add(job("late", arrived=1))
    scheduler.add(job("urgent", arrived=2, due=3))
    assert scheduler.rows == 2
    assert begin(scheduler) == ["urgent"]
    assert begin(scheduler) == []
    scheduler.prefilled(large)
    assert begin(scheduler) == []  # four rows
    scheduler.end(scheduler.running[0])
    assert begin(scheduler) == ["late"]
