"""A server whose draft works beside the target: one request at a time, whatever becomes of it."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.real_service import shaken, target
from serve.spoken import byte_level
from serve.test_chat_process import start
from serve.test_chat_run import HELLO, TEMPLATE, Running, running, streamed, wait_for
from sooner.tasks.loading import Loaded, ModelPair

pytest.importorskip("openai")
pytestmark = pytest.mark.slow

QUESTIONS: list[dict[str, Any]] = [
    {"text": "the end", "frequency_penalty": -0.06},
    {"text": "a fox, a fox", "temperature": 0.7, "seed": 4, "frequency_penalty": -0.5},
    {"text": "hello", "stop": "END"},
    {"text": "again"},
]


def pair() -> ModelPair:
    tokenizer = copy.copy(byte_level())
    tokenizer.chat_template = TEMPLATE
    return ModelPair(
        Loaded("org/tiny", target(), tokenizer, True), Loaded("d", shaken(), tokenizer, True)
    )


def drafts_of(response: Any) -> dict[str, Any]:
    return dict(response.model_extra["metrics"]["speculative_decoding"])


def process_of(server: Running) -> Any:
    """The draft's process."""
    (worker,) = server.server._standing.workers
    return worker.runner


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """What plain decoding says."""
    with running(pair(), method="plain") as server:
        return [server.chat(**question).choices[0].message.content for question in QUESTIONS]


@pytest.fixture(scope="module")
def parallel() -> Iterator[Running]:
    with running(pair(), method="parallel") as server:
        yield server
        process = process_of(server)
        pid = process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_requests_in_sequence_share_a_process(parallel: Running, texts: list[str]) -> None:
    assert parallel.server.settings.max_rows == 1
    assert parallel.client.models.list().data[0].model_extra["method"] == "parallel"
    pid = process_of(parallel).pid
    responses = [parallel.chat(**question) for question in QUESTIONS]
    assert [response.choices[0].message.content for response in responses] == texts
    wait_for(lambda: accepted(parallel, texts[0]) > 0)  # a busy machine's draft may come too late
    assert process_of(parallel).pid == pid


def test_a_process_that_dies_costs_drafts_and_no_answer(
    parallel: Running, texts: list[str]
) -> None:
    first = process_of(parallel).pid
    stream = iter(parallel.chat(**QUESTIONS[0], stream=True))
    begun = [next(stream) for _ in range(3)]
    os.kill(first, signal.SIGKILL)
    text, _, _ = streamed([*begun, *stream])
    assert text == texts[0]
    wait_for(lambda: parallel.server.thread.load().running == 0)
    # The next process takes seconds to load its draft; meanwhile answers are decoded plainly.
    wait_for(lambda: accepted(parallel, texts[0]) > 0)
    assert process_of(parallel).pid != first


def accepted(server: Running, expected: str) -> int:
    """Draft tokens that the first question's answer accepted; the answer is what it has to be."""
    response = server.chat(**QUESTIONS[0])
    assert response.choices[0].message.content == expected
    return int(drafts_of(response)["num_accepted_draft_tokens"])


def test_a_hang_up_leaves_the_process_to_the_next_request(
    parallel: Running, texts: list[str]
) -> None:
    stream = parallel.chat(text="on and on", stream=True, max_tokens=400)
    next(iter(stream))
    stream.response.close()
    response = parallel.chat(**QUESTIONS[0])
    assert response.choices[0].message.content == texts[0]
    assert parallel.server.thread.state == "ready"


def children_of(parent: int) -> list[int]:
    """Processes that a process has started."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[1]) == parent:
                pids.append(int(folder.name))
    return pids


@pytest.mark.lab
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_the_command_prints_its_limit_and_ends_with_its_process(tmp_path: Path) -> None:
    started = start(tmp_path, "miniature", "--method", "parallel")
    try:
        options = {"model": "miniature", "messages": HELLO, "max_tokens": 20}
        response = started.client.chat.completions.create(**options)
        assert drafts_of(response)["num_draft_tokens"] > 0
        children = children_of(started.process.pid)
        assert children
        wait_for(lambda: "one request decodes at a time" in "".join(started.output))
        assert started.stop() == 0
    finally:
        started.process.kill()
        started.process.wait()
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
