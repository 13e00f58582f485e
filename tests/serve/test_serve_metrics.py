"""Metrics of the chat server: vLLM's names, what they count, and the board that shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from stub_engine import StubClock, StubEngine, request_of

from sooner.serve.engine_thread import EngineThread, ServedRequest
from sooner.serve.metrics import PREFIX, ServerMetrics

BOARD = Path(__file__).parents[2] / "examples" / "grafana" / "sooner.json"

VLLM = {
    "num_requests_running": "gauge", "num_requests_waiting": "gauge",
    "kv_cache_usage_perc": "gauge",
    "prompt_tokens": "counter", "generation_tokens": "counter", "request_success": "counter",
    "num_preemptions": "counter", "prefix_cache_queries": "counter", "prefix_cache_hits": "counter",
    "spec_decode_num_drafts": "counter", "spec_decode_num_draft_tokens": "counter",
    "spec_decode_num_accepted_tokens": "counter",
    "spec_decode_num_accepted_tokens_per_pos": "counter",
    "time_to_first_token_seconds": "histogram", "inter_token_latency_seconds": "histogram",
    "e2e_request_latency_seconds": "histogram", "request_queue_time_seconds": "histogram",
    "request_prompt_tokens": "histogram", "request_generation_tokens": "histogram",
}  # fmt: skip
"""Names and types of vLLM's documentation (docs/design/metrics.md, v1/metrics/loggers.py)."""


class Server:
    """A loop over a stub engine, and its metrics."""

    def __init__(
        self, *, rows: int = 2, pages: int | None = None, blocks: tuple[int, ...] = (3,)
    ) -> None:
        self.clock = StubClock()
        self.engine = StubEngine(
            max_rows=rows, blocks=blocks, pages=pages, page=8, spend=self.clock.advance,
            prefill_cost=0.125, round_cost=0.5, clock=self.clock,
        )  # fmt: skip
        self.loop = EngineThread(lambda: self.engine, clock=self.clock)
        self.metrics = self.loop.listener = ServerMetrics("toy", self.loop)
        self.loop.open()

    def add(self, limit: int, due: float | None = None) -> ServedRequest:
        request = request_of("a", [1, 2, 3, 4], limit, arrived=self.clock(), deadline=due)
        self.loop.submit(request)
        self.loop.run_commands()
        return request

    def run(self) -> None:
        while self.loop.requests:
            self.loop.step()

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            PREFIX + name, {"model_name": "toy", **labels}
        )


def families(metrics: ServerMetrics) -> dict[str, str]:
    """Name without the prefix -> type."""
    parsed = text_string_to_metric_families(metrics.text().decode())
    return {family.name.removeprefix(PREFIX): family.type for family in parsed}


def samples(metrics: ServerMetrics) -> set[str]:
    parsed = text_string_to_metric_families(metrics.text().decode())
    return {sample.name for family in parsed for sample in family.samples}


def test_names_and_types_are_those_of_vllm() -> None:
    types = families(Server().metrics)
    assert {name: types.get(name) for name in VLLM} == VLLM
    ours = {name for name in types if name not in VLLM and not name.endswith("_created")}
    assert ours == {"alarms"}


def test_tokens_and_times_are_counted() -> None:
    server = Server(rows=1)
    server.add(8)
    server.add(1)
    server.run()
    # 4 tokens are prefilled in 0.5 s, then 7 are said in rounds of 3, 3 and 1 of 0.5 s each;
    # the other job waits until 2.0 s, and says its token at 2.5 s.
    assert server.value("prompt_tokens_total") == 8
    assert server.value("generation_tokens_total") == 9
    assert server.value("time_to_first_token_seconds_sum") == 0.5 + 2.5
    assert server.value("time_to_first_token_seconds_count") == 2
    assert server.value("inter_token_latency_seconds_sum") == 1.5
    assert server.value("inter_token_latency_seconds_count") == 3
    assert server.value("request_queue_time_seconds_sum") == 2.0
    assert server.value("e2e_request_latency_seconds_sum") == 2.0 + 2.5
    assert server.value("request_generation_tokens_sum") == 9
    assert server.value("request_success_total", finished_reason="length") == 2
    assert server.value("request_success_total", finished_reason="abort") == 0


def test_alarms_of_the_engine_are_counted_by_kind() -> None:
    server = Server()
    for count in (2, 2, 3):
        server.engine.alarms["mismatch"] = count
        text = server.metrics.text().decode()
        assert f'sooner:alarms_total{{kind="mismatch",model_name="toy"}} {count}.0' in text
        assert 'sooner:alarms_total{kind="acceptance",model_name="toy"} 0.0' in text


def test_ends_of_every_kind_are_counted() -> None:
    server = Server(rows=1)
    for reason in ("cancelled", "stop"):  # a client that left, and a stop string
        gone = server.add(50)
        server.loop.step()
        server.loop.cancel(gone, reason)
        server.loop.run_commands()
    server.add(50, due=0)
    server.engine.failures.append(("prefill", ValueError("made up")))
    server.add(50)
    server.run()
    ends = {
        reason: server.value("request_success_total", finished_reason=reason)
        for reason in ("abort", "deadline", "error", "length", "stop")
    }
    assert ends == {"abort": 1, "deadline": 1, "error": 1, "length": 0, "stop": 1}


def test_preempted_rows_are_counted_and_their_prompts_only_once() -> None:
    server = Server(rows=3, pages=8)
    for _ in range(3):
        server.add(40)
    server.run()
    lost = [row.request.num_preemptions for row in server.engine.admitted]
    assert server.value("num_preemptions_total") == sum(lost) > 0
    assert len(lost) == 3
    assert server.value("prompt_tokens_total") == 12
    assert server.value("generation_tokens_total") == 120
    assert server.value("time_to_first_token_seconds_count") == 3


def expressions(node: object) -> Iterator[str]:
    """Every query of the board."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("expr", "definition", "query") and isinstance(value, str):
                yield value
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def test_the_board_shows_metrics_that_exist() -> None:
    server = Server()
    server.add(8)
    server.run()
    known = samples(server.metrics)
    queried = {
        name
        for text in expressions(json.loads(BOARD.read_text(encoding="utf-8")))
        for name in re.findall(rf"{PREFIX}\w+", text)
    }
    assert queried - known == set()
    plain = {re.sub("_(total|bucket)$", "", name).removeprefix(PREFIX) for name in queried}
    assert set(VLLM) == plain
