"""`--replicas 1 --max-replicas 2` under load: a replica comes and goes, and nobody notices."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.stub_server import ROWS
from cluster.test_serve_replicas import SOON, Served, asked, ended, read, started
from serve.test_chat_run import running

pytest.importorskip("ray.serve")

SAID = [f"{one} said hello" for one in ("she", "he", "they", "we", "you", "nobody")]
TOKENS, UP, DOWN = 40, 1.0, 3.0
RESTART = 180.0
"""Seconds for Ray, which counts requests of half a minute, to add a replica or take one away."""


def client(
    served: Served, said: str, whole: str, answered: set[str], is_over: threading.Event
) -> None:
    """Ask until it is over, by turns for the whole and for a stream; tell who answered."""
    while not is_over.is_set():
        answer = served.ask(said, TOKENS)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["message"]["content"] == whole
        stream = read(served, said, TOKENS, threading.Semaphore(0))
        assert stream.is_whole, stream.lines[-1]
        answered.update((answer.headers["x-sooner-replica"], stream.replica))


@pytest.mark.soak
def test_a_replica_is_added_under_load_and_taken_away_after() -> None:
    with running(method="prompt-lookup") as plain:
        create = plain.client.chat.completions.create
        answers = [create(model="tiny", **asked(said, TOKENS)) for said in SAID]
    wholes = [one.choices[0].message.content for one in answers]
    # The front tells Ray of its requests every 10 s otherwise.
    soon = {"RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1"}
    served = started(1, 2, delays=(UP, DOWN), **soon)
    light, heavy = threading.Event(), threading.Event()
    # As many as one replica decodes together stay until the end.
    ends = [light if at < ROWS else heavy for at in range(len(SAID))]
    answered: set[str] = set()
    try:
        (first,) = served.well()
        with ThreadPoolExecutor(len(SAID)) as pool:
            clients = [
                pool.submit(client, served, said, whole, answered, end)
                for said, whole, end in zip(SAID, wholes, ends, strict=True)
            ]
            try:
                served.waits(lambda: len(served.well()) == 2, RESTART)
                (second,) = served.well() - {first}
                served.waits(lambda: second in answered)
                heavy.set()
                served.waits(lambda: len(served.replicas()) == 1, RESTART)
            finally:
                heavy.set()
                light.set()
            for one in clients:
                one.result(SOON)
        assert answered == {first, second}
        assert len(served.well()) == 1
        assert served.ask(SAID[0], TOKENS).status_code == 200
        assert served.errors.read_text() == ""
    finally:
        ended(served)
    assert served.process.returncode == 0
