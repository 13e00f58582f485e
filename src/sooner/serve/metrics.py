"""Metrics of a server for Prometheus.

Names are vLLM's with `sooner:` in place of `vllm:` where they mean the same, so
that its boards and alerts need a new prefix only (vLLM, `docs/design/metrics.md`).
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..engine.rows import Reason
from ..engine.stats.run import ALARMS
from .engine_thread import EngineThread, ServedRequest

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

COUNTERS = {
    "prompt_tokens": "Prompt tokens of requests that began.",
    "generation_tokens": "Tokens generated.",
    "num_preemptions": "Rows that gave way for want of pages.",
    "prefix_cache_queries": "Prompt tokens looked up among shared pages.",
    "prefix_cache_hits": "Prompt tokens found there.",
    "spec_decode_num_drafts": "Rounds of a row with a draft.",
    "spec_decode_num_draft_tokens": "Draft tokens verified.",
    "spec_decode_num_accepted_tokens": "Draft tokens accepted.",
}
LABELLED = {
    "request_success": ("Requests by how they ended.", "finished_reason"),
    "alarms": ("Fallen acceptance, blocks that plain decoding refutes, lost workers.", "kind"),
    "spec_decode_num_accepted_tokens_per_pos": (
        "Draft tokens accepted by place in the draft, from 0 on.", "position",
    ),
}  # fmt: skip
"""Counters with a label of their own."""
HISTOGRAMS = {
    "time_to_first_token_seconds": ("From a request's arrival to its first token.", FIRST_TOKEN),
    "inter_token_latency_seconds": (
        "Between two rounds that committed tokens of a request; a round may commit several.",
        BETWEEN_TOKENS,
    ),
    "e2e_request_latency_seconds": ("From a request's arrival to its end.", REQUESTS),
    "request_queue_time_seconds": ("From a request's arrival to its row.", REQUESTS),
    "request_prompt_tokens": ("Prompt tokens of a request.", TOKENS),
    "request_generation_tokens": ("Tokens generated for a request.", TOKENS),
}  # fmt: skip


class ServerMetrics:
    """What the server of one model has done, in a registry of its own.

    `on_start`, `on_tokens` and `on_end` are called by the engine's thread.

    Args:
        model: name of the served model, a label of everything.
        service: whose load is read when the metrics are.
    """

    def __init__(self, model: str, service: EngineThread) -> None:
        self.registry = CollectorRegistry()
        self._model, self._service, load = model, service, service.load
        self._alarms = Counts[str]()  # that are counted
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "num_requests_running": ("Requests that have a row.", lambda: load().running),
            "num_requests_waiting": ("Requests that wait for a row.", lambda: load().waiting),
            "kv_cache_usage_perc": (
                "Used share of the cache's pages, 0 to 1.",
                lambda: load().pages_used / max(load().pages, 1),
            ),
        }
        for name, (text, read) in gauges.items():
            self._add(Gauge, name, text).set_function(read)
        self._counters = {name: self._add(Counter, name, text) for name, text in COUNTERS.items()}
        self._histograms = {
            name: self._add(Histogram, name, text, buckets=bounds)
            for name, (text, bounds) in HISTOGRAMS.items()
        }
        self._labelled = {
            name: Counter(PREFIX + name, text, ["model_name", label], registry=self.registry)
            for name, (text, label) in LABELLED.items()
        }
        for reason in FINISHED.values():
            self._labelled["request_success"].labels(model, reason)
        for kind in ALARMS:
            self._labelled["alarms"].labels(model, kind)

    def _add(self, kind: type[Any], name: str, text: str, **options: Any) -> Any:
        metric = kind(PREFIX + name, text, ["model_name"], registry=self.registry, **options)
        return metric.labels(self._model)

    def _count(self, name: str, label: Any, amount: int = 1) -> None:
        self._labelled[name].labels(self._model, str(label)).inc(amount)

    def on_start(self, request: ServedRequest, waited: float) -> None:
        """Records that a request got its first row."""
        self._histograms["request_queue_time_seconds"].observe(waited)
        self._counters["prompt_tokens"].inc(request.prompt_tokens)

    def on_tokens(
        self, request: ServedRequest, tokens: int, seconds: float, is_first: bool
    ) -> None:
        """Records that a round committed tokens of a request, `seconds` after the ones before; the
        first ones after the request arrived."""
        self._counters["generation_tokens"].inc(tokens)
        name = "time_to_first_token_seconds" if is_first else "inter_token_latency_seconds"
        self._histograms[name].observe(seconds)

    def on_end(self, request: ServedRequest, seconds: float) -> None:
        """Records a request's end, `seconds` after it arrived, with what was drafted for it."""
        self._count("request_success", FINISHED[request.finish_reason or "error"])
        self._histograms["e2e_request_latency_seconds"].observe(seconds)
        self._counters["num_preemptions"].inc(request.num_preemptions)
        self._counters["spec_decode_num_drafts"].inc(request.num_drafts)
        self._counters["spec_decode_num_draft_tokens"].inc(request.num_draft_tokens)
        self._counters["spec_decode_num_accepted_tokens"].inc(request.num_accepted)
        for size, rounds in request.acceptance.items():
            for position in range(size):
                self._count("spec_decode_num_accepted_tokens_per_pos", position, rounds)
        tokens = request.completion_tokens
        if not tokens:
            return
        self._histograms["request_prompt_tokens"].observe(request.prompt_tokens)
        self._histograms["request_generation_tokens"].observe(tokens)
        self._counters["prefix_cache_queries"].inc(request.prompt_tokens)
        self._counters["prefix_cache_hits"].inc(request.cached_tokens)

    def text(self) -> bytes:
        """Returns Prometheus' text format."""
        engine = getattr(self._service, "engine", None)
        for kind, number in dict(getattr(engine, "alarms", {})).items():
            self._count("alarms", kind, number - self._alarms[kind])
            self._alarms[kind] = number
        return generate_latest(self.registry)
