"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .engine_loop import LoopListener
from .jobs import Finished, GenerationJob, ServiceLoad

LATENCY = (0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
WAITS = (0.001, 0.0025, *LATENCY)
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
TOKENS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)


class Metrics(LoopListener):
    """Holds counters of a policy's server, in a registry of its own.

    Args:
        load: read when the metrics are.
    """

    def __init__(self, load: Callable[[], ServiceLoad]) -> None:
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("sooner_requests", "Requests by status.", ["status"], **options)
        self.late = Counter("sooner_late", "Answers after their deadline.", **options)
        self.actions = Counter("sooner_actions", "Actions by mode.", ["mode"], **options)
        self.tokens = Counter("sooner_tokens", "Action tokens said.", **options)
        self.forwards = Counter("sooner_forwards", "Forwards of the policy.", **options)
        self.seconds = Histogram(
            "sooner_request_seconds", "From request to answer.", buckets=LATENCY, **options
        )
        self.queue = Histogram(
            "sooner_queue_seconds", "From request to batch, or to its end in the queue.",
            buckets=WAITS, **options,
        )  # fmt: skip
        self.rows = Histogram("sooner_batch_rows", "Robots in a batch.", buckets=ROWS, **options)
        self.pace = Histogram(
            "sooner_tokens_per_forward", "Of a robot's action.", buckets=TOKENS, **options
        )
        depth = Gauge("sooner_queue_depth", "Requests that wait.", **options)
        depth.set_function(lambda: load().waiting)
        busy = Gauge("sooner_running", "Requests that are computed.", **options)
        busy.set_function(lambda: load().running)

    def ended(self, job: GenerationJob, end: Finished) -> None:
        """Records that a request left the queue."""
        began = job.ended_at if end.result is None else end.result.began
        self.queue.observe(began - job.arrived)

    def answered(self, status: int, seconds: float) -> None:
        """Records that a request ended."""
        self.requests.labels(str(status)).inc()
        self.seconds.observe(seconds)

    def batch(self, actions: list[Any]) -> None:
        """A batch was computed; batches that were split count as several."""
        if not actions:
            return
        self.rows.observe(len(actions))
        runs = {id(action.stats): action.stats for action in actions}
        for stats in runs.values():
            self.tokens.inc(stats.tokens)
            self.forwards.inc(stats.nfe)
            self.pace.observe(stats.tokens / max(stats.rows * stats.nfe, 1))
        for action in actions:
            self.actions.labels(action.mode).inc()

    def text(self) -> bytes:
        """Returns Prometheus' text format."""
        return generate_latest(self.registry)
