"""Metrics of `sooner serve MODEL` for Prometheus.

Names are vLLM's with `sooner:` in place of `vllm:` where they mean the same, so that its boards
and alerts need a new prefix only (vLLM, `docs/design/metrics.md`). Ours alone: `pages`,
`pages_used`, `engine_tick_age_seconds` and `http_requests`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .engine_loop import LoopListener
from .jobs import Finished, GenerationJob, Reason, ServiceLoad

PREFIX = "sooner:"

FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
BETWEEN_TOKENS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
REQUESTS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
TOKENS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))
"""Upper bounds of histograms: vLLM's."""

FINISHED: dict[Reason, str] = {
    "stop": "stop", "length": "length", "cancelled": "abort", "error": "error",
    "deadline": "deadline",
}  # fmt: skip
"""vLLM's `finished_reason` of each of ours; a deadline is one that vLLM lacks."""

LABELS = ["model_name"]


class ChatMetrics(LoopListener):
    """What one server has done, in a registry of its own; a `LoopListener`.

    Args:
        model: name of the served model, a label of everything.
        load: read when the metrics are.
        tick_age: seconds since the engine's thread last went round.
    """

    def __init__(
        self, model: str, load: Callable[[], ServiceLoad], tick_age: Callable[[], float]
    ) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        self._add_gauges(load, tick_age)
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of jobs that began.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated.")
        ends = self._counters("request_success", "Jobs by how they ended.", "finished_reason")
        self.success = {reason: ends.labels(model, reason) for reason in FINISHED.values()}
        self.preemptions = self._counter("num_preemptions", "Rows that gave way for want of pages.")
        self.prefix_queries = self._counter(
            "prefix_cache_queries", "Prompt tokens looked up among shared pages."
        )
        self.prefix_hits = self._counter("prefix_cache_hits", "Prompt tokens found there.")
        self.drafts = self._counter("spec_decode_num_drafts", "Rounds of a row with a draft.")
        self.draft_tokens = self._counter("spec_decode_num_draft_tokens", "Draft tokens verified.")
        self.accepted_tokens = self._counter(
            "spec_decode_num_accepted_tokens", "Draft tokens accepted."
        )
        self.accepted_at = self._counters(
            "spec_decode_num_accepted_tokens_per_pos",
            "Draft tokens accepted by place in the draft, from 0 on.",
            "position",
        )
        self.http_requests = self._counters("http_requests", "Requests by status.", "status")
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "From a job's arrival to its first token.", FIRST_TOKEN
        )
        self.between_tokens = self._histogram(
            "inter_token_latency_seconds",
            "Between two rounds that committed tokens of a job; a round may commit several.",
            BETWEEN_TOKENS,
        )
        self.per_token = self._histogram(
            "request_time_per_output_token_seconds",
            "Mean of a job: behind its first token, seconds by tokens.",
            BETWEEN_TOKENS,
        )
        self.latency = self._histogram(
            "e2e_request_latency_seconds", "From a job's arrival to its end.", REQUESTS
        )
        self.queue_time = self._histogram(
            "request_queue_time_seconds", "From a job's arrival to its row.", REQUESTS
        )
        self.job_prompt = self._histogram(
            "request_prompt_tokens", "Prompt tokens of a job.", TOKENS
        )
        self.job_tokens = self._histogram(
            "request_generation_tokens", "Tokens generated for a job.", TOKENS
        )
        self.draft_requests = self._histogram(
            "request_params_num_draft_tokens",
            "num_draft_tokens of jobs whose request says it; 0 decodes plainly.",
            (0, *TOKENS[:6]),
        )

    def begun(self, job: GenerationJob, waited: float) -> None:
        """Records that a job got its first row."""
        self.queue_time.observe(waited)
        self.prompt_tokens.inc(job.prompt_tokens)
        if job.num_draft_tokens is not None:
            self.draft_requests.observe(job.num_draft_tokens)

    def committed(self, job: GenerationJob, tokens: int, seconds: float, is_first: bool) -> None:
        """Records that a round committed tokens of a job."""
        self.generation_tokens.inc(tokens)
        (self.first_token if is_first else self.between_tokens).observe(seconds)

    def drafted(self, job: GenerationJob, drafts: int, tokens: int, accepted: int) -> None:
        """Rounds of a job had drafts of so many tokens, of which so many were accepted."""
        self.drafts.inc(drafts)
        self.draft_tokens.inc(tokens)
        self.accepted_tokens.inc(accepted)
        for place in range(accepted):
            self.accepted_at.labels(self._model, str(place)).inc()

    def preempted(self, job: GenerationJob) -> None:
        """A job lost its row, and waits for another."""
        self.preemptions.inc()

    def ended(self, job: GenerationJob, end: Finished) -> None:
        """Records that a job ended, in whatever way."""
        self.success[FINISHED[end.reason]].inc()
        self.latency.observe(job.ended_at - job.arrived)
        usage = end.usage
        if not usage.completion_tokens:
            return
        if usage.completion_tokens > 1 and job.first_at is not None:
            seconds = job.reported_at - job.first_at
            self.per_token.observe(seconds / (usage.completion_tokens - 1))
        self.job_prompt.observe(usage.prompt_tokens)
        self.job_tokens.observe(usage.completion_tokens)
        self.prefix_queries.inc(usage.prompt_tokens)
        self.prefix_hits.inc(usage.cached_tokens)

    def answered(self, status: int, seconds: float) -> None:
        """A request of OpenAI's API got a status; a stream, once it begins."""
        self.http_requests.labels(self._model, str(status)).inc()

    def _add_gauges(self, load: Callable[[], ServiceLoad], tick_age: Callable[[], float]) -> None:
        self._gauge("num_requests_running", "Jobs that have a row.", lambda: load().running)
        self._gauge("num_requests_waiting", "Jobs that wait for a row.", lambda: load().waiting)
        self._gauge(
            "kv_cache_usage_perc",
            "Used share of the cache's pages, 0 to 1.",
            lambda: load().pages_used / max(load().pages, 1),
        )
        self._gauge("pages_used", "Pages of the cache that rows hold.", lambda: load().pages_used)
        self._gauge("pages", "Pages of the cache.", lambda: load().pages)
        self._gauge("engine_tick_age_seconds", "Since the engine's thread went round.", tick_age)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        gauge = Gauge(PREFIX + name, text, LABELS, registry=self.registry)
        gauge.labels(self._model).set_function(read)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(PREFIX + name, text, LABELS, registry=self.registry).labels(self._model)

    def _counters(self, name: str, text: str, label: str) -> Counter:
        return Counter(PREFIX + name, text, [*LABELS, label], registry=self.registry)

    def _histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        histogram = Histogram(PREFIX + name, text, LABELS, buckets=bounds, registry=self.registry)
        return histogram.labels(self._model)

    def text(self) -> bytes:
        """Returns Prometheus' text format."""
        return generate_latest(self.registry)
