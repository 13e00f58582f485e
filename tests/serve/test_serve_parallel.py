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

ASKED: list[dict[str, Any]] = [
    {"said": "the end", "frequency_penalty": -0.06},
    {"said": "a fox, a fox", "temperature": 0.7, "seed": 4, "frequency_penalty": -0.5},
    {"said": "hello", "stop": "END"},
    {"said": "again", "extra_body": {"num_draft_tokens": 0}},
]


def pair() -> ModelPair:
    tokenizer = copy.copy(byte_level())
    tokenizer.chat_template = TEMPLATE
    return ModelPair(
        Loaded("org/tiny", target(), tokenizer, True), Loaded("d", shaken(), tokenizer, True)
    )


def drafts_of(told: Any) -> dict[str, Any]:
    return dict(told.model_extra["metrics"]["speculative_decoding"])


def process_of(server: Running) -> Any:
    """The draft's process."""
    (held,) = server.server._standing.processes
    return held.process


@pytest.fixture(scope="module")
def wanted() -> list[str]:
    """What plain decoding says."""
    with running(pair(), method="plain") as server:
        return [server.say(**asked).choices[0].message.content for asked in ASKED]


@pytest.fixture(scope="module")
def beside() -> Iterator[Running]:
    with running(pair(), method="parallel") as server:
        yield server
        process = process_of(server)
        pid = process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_requests_one_after_the_other_share_a_process(beside: Running, wanted: list[str]) -> None:
    assert beside.server.settings.max_rows == 1
    assert beside.client.models.list().data[0].model_extra["method"] == "parallel"
    pid = process_of(beside).pid
    told = [beside.say(**asked) for asked in ASKED]
    assert [one.choices[0].message.content for one in told] == wanted
    assert drafts_of(told[0])["num_accepted_draft_tokens"] > 0
    assert drafts_of(told[3])["num_draft_tokens"] == 0
    assert process_of(beside).pid == pid


def test_a_process_that_dies_costs_drafts_and_no_answer(beside: Running, wanted: list[str]) -> None:
    first = process_of(beside).pid
    stream = iter(beside.say(**ASKED[0], stream=True))
    begun = [next(stream) for _ in range(3)]
    os.kill(first, signal.SIGKILL)
    text, _, _ = streamed([*begun, *stream])
    assert text == wanted[0]
    wait_for(lambda: beside.server.thread.load().running == 0)
    # The next process takes seconds to load its draft; meanwhile answers are decoded plainly.
    wait_for(lambda: accepted(beside, wanted[0]) > 0)
    assert process_of(beside).pid != first


def accepted(server: Running, wanted: str) -> int:
    """Draft tokens that the first question's answer accepted; the answer is what it has to be."""
    told = server.say(**ASKED[0])
    assert told.choices[0].message.content == wanted
    return int(drafts_of(told)["num_accepted_draft_tokens"])


def test_a_hang_up_leaves_the_process_to_the_next_request(
    beside: Running, wanted: list[str]
) -> None:
    stream = beside.say(said="on and on", stream=True, max_tokens=400)
    next(iter(stream))
    stream.response.close()
    told = beside.say(**ASKED[0])
    assert told.choices[0].message.content == wanted[0]
    assert beside.server.thread.state == "ready"


def children_of(parent: int) -> list[int]:
    """Processes that a process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[1]) == parent:
                found.append(int(folder.name))
    return found


@pytest.mark.lab
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_the_command_says_so_and_ends_with_its_process(tmp_path: Path) -> None:
    started = start(tmp_path, "miniature", "--method", "parallel")
    try:
        options = {"model": "miniature", "messages": HELLO, "max_tokens": 20}
        told = started.client.chat.completions.create(**options)
        assert drafts_of(told)["num_draft_tokens"] > 0
        children = children_of(started.process.pid)
        assert children
        wait_for(lambda: "one request decodes at a time" in "".join(started.output))
        assert started.stop() == 0
    finally:
        started.process.kill()
        started.process.wait()
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
