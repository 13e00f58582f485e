"""Twenty replicas killed under load: everybody is answered or told, and the server stays."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import psutil
import pytest
from ray_nodes import children

from cluster.test_serve_replicas import CHAT, SOON, Served, chat_body, ended, started

pytest.importorskip("ray.serve")

KILLS, CLIENTS, PROMPT, TOKENS = 20, 6, "once upon a time", 24
RESTART = 240.0
"""Seconds for a replica to start, of which two may share two busy cores."""


def stream(served: Served) -> tuple[str, str]:
    """What a stream said, and how it ended: `whole`, `cut`, or a status."""
    # Drawn at random, so that little is found to look up and it takes its time.
    more = {"stream": True, "ignore_eos": True, "temperature": 1.0, "seed": 1}
    lines, body = [], chat_body(PROMPT, TOKENS, **more)
    with httpx.stream("POST", served.address + CHAT, json=body, timeout=SOON) as answer:
        if answer.status_code != 200:
            return "", str(answer.status_code)
        with suppress(httpx.RemoteProtocolError):
            for entry in answer.iter_lines():
                lines.append(entry.removeprefix("data: "))
    end = "whole" if "[DONE]" in lines else "cut"
    choices = [json.loads(entry)["choices"] for entry in lines if entry.startswith("{")]
    text = "".join(entry[0]["delta"].get("content") or "" for entry in choices if entry)
    return text, end


@pytest.mark.soak
def test_twenty_kills_under_load() -> None:
    served, outcomes, is_over = started(), Counter[str](), threading.Event()
    whole = served.ask(PROMPT, TOKENS).json()["choices"][0]["message"]["content"]
    whole_stream, end = stream(served)
    assert end == "whole"

    def client(number: int) -> None:
        chance = random.Random(number)
        while not is_over.is_set():
            if chance.random() < 0.5:
                text, end = stream(served)
                assert text == whole_stream if end == "whole" else whole_stream.startswith(text)
                assert end in ("whole", "cut", "500")
                outcomes[end] += 1
                continue
            answer = served.ask(PROMPT, TOKENS)
            outcomes[str(answer.status_code)] += 1
            if answer.status_code == 200:
                assert answer.json()["choices"][0]["message"]["content"] == whole
            else:
                assert answer.status_code == 500, answer.text

    try:
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(client, number) for number in range(CLIENTS)]
            chance = random.Random(0)
            try:
                for _ in range(KILLS):
                    # One answers, and the other one may still load: either may be killed.
                    served.waits(lambda: len(served.replicas()) == 2 and served.well(), RESTART)
                    time.sleep(chance.uniform(0.0, 4.0))
                    chance.choice(served.replicas()).kill()
            finally:
                is_over.set()
            for future in clients:
                future.result(SOON)
        served.waits(lambda: len(served.well()) == 2, RESTART)
        print(dict(outcomes))
        assert outcomes["200"] > 50, outcomes
        assert outcomes["whole"] > 50, outcomes
        assert outcomes["cut"] > 0, outcomes
        assert httpx.get(served.address + "/ready").status_code == 200
        everything = children(served.process.pid)
    finally:
        ended(served)
    assert served.process.returncode == 0
    assert not psutil.wait_procs(everything, 20)[1]
