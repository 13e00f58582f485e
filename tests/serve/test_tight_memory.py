"""A whole server with too little memory: streams pause and go on, what can't fit is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import torch

from serve.test_chat_run import Running, openai, running, streamed
from sooner.engine.memory import manager
from sooner.engine.runner import ModelRunner

pytestmark = pytest.mark.slow

SLOTS, PAGES = 16, 11
TOKEN = 2 * 3 * 2 * 12 * 4
"""Bytes of a token of the tiny model."""


@pytest.fixture(scope="module")
def tight() -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager, "PAGE", SLOTS)
        memory = PAGES * SLOTS * TOKEN
        with running(method="plain", max_rows=3, kv_cache_memory_bytes=memory) as server:
            yield server


def metric(server: Running, name: str) -> float:
    lines = httpx.get(f"{server.address}/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith(f"sooner:{name}{{")]
    return float(line.split()[-1])


def test_streams_of_requests_that_made_room_repeat_and_lose_nothing(tight: Running) -> None:
    def ask(number: int) -> tuple[str, Any, str | None]:
        drawn = {"temperature": 1.0, "seed": number} if number % 2 else {}
        stream = tight.chat(
            f"say {number}", stream=True, max_tokens=90, extra_body={"ignore_eos": True},
            stream_options={"include_usage": True}, **drawn,
        )  # fmt: skip
        return streamed(stream)

    alone = [ask(number) for number in range(6)]
    assert metric(tight, "num_preemptions_total") == 0
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(ask, range(6)))
    assert metric(tight, "num_preemptions_total") > 0
    assert [result[::2] for result in together] == [result[::2] for result in alone]
    assert {result[1].completion_tokens for result in (*alone, *together)} == {90}
    assert metric(tight, "kv_cache_usage_perc") == 0
    assert tight.server.thread.load().pages == PAGES


@pytest.mark.parametrize(
    ("owner", "name"), [(manager, "fill_pages"), (ModelRunner, "forward_tree")]
)
def test_memory_that_runs_out_leaves_the_server_alive(
    tight: Running, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At admission, and in a round."""
    expected = tight.chat().choices[0].message.content

    def fails(*args: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails)
        with pytest.raises(openai.APIStatusError) as caught:
            tight.chat()
    assert (caught.value.status_code, caught.value.body["code"]) == (503, "out_of_memory")
    assert tight.chat().choices[0].message.content == expected
    assert metric(tight, "kv_cache_usage_perc") == 0
    assert httpx.get(f"{tight.address}/health").status_code == 200
