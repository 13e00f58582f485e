"""What a job on Ray counts while rows come in any order."""

from __future__ import annotations

from typing import Any

from sooner.ray.job import RayJob
from sooner.tasks.parse.result import Counts


def test_pages_that_come_before_their_document_are_counted_once() -> None:
    job: Any = object.__new__(RayJob)
    job.counts, job.on_page, job._expected, job._open = Counts(), None, 0, {}
    job._is_seen, job._is_done = bytearray(2), bytearray(2)
    told = {"before": 0, "aside": 0}
    job._opened({}, {"document": 0, "todo": 1, "of": 1, **told})
    for _ in range(3):  # one of the first document, two of one that was not told yet
        job._count({"status": "SUCCESS"})
    assert (job.counts.done, job.counts.total) == (3, 3)
    job._opened({}, {"document": 1, "todo": 4, "of": 4, **told})
    assert (job.counts.done, job.counts.total) == (3, 5)
