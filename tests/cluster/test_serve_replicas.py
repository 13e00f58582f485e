"""`RayServer` on a real Ray: two replicas of a tiny model behind one address, killed and drained.

Tests share one server, in their order; the last one ends it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from ray_nodes import children

from serve.test_chat_run import running, streamed

pytestmark = [pytest.mark.slow, pytest.mark.random_order(disabled=True)]
"""Its tests share a server, count what it has cached, and the last ones end it."""

pytest.importorskip("ray.serve")
openai = pytest.importorskip("openai")
grpc = pytest.importorskip("grpc")

TESTS = Path(__file__).parents[1]
CHAT = "/v1/chat/completions"
START, SOON = 150.0, 60.0
HELD = 0.02
"""Seconds of a forward."""


@dataclass
class Served:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    address: str
    errors: Path

    @property
    def client(self) -> Any:
        return openai.OpenAI(base_url=f"{self.address}/v1", api_key="none", max_retries=0)

    def ask(self, said: str, tokens: int = 16, **more: Any) -> httpx.Response:
        return httpx.post(self.address + CHAT, json=asked(said, tokens, **more), timeout=SOON)

    def replicas(self) -> list[psutil.Process]:
        """Processes of replicas that have come up."""
        found = []
        for one in children(self.process.pid):
            try:
                name = " ".join(one.cmdline()[:1])
            except psutil.Error:
                continue
            if "ServeReplica" in name:
                found.append(one)
        return found

    def well(self) -> set[str]:
        """Replicas that say that they are."""
        told = httpx.get(self.address + "/health", timeout=SOON).json()
        return {one["replica"] for one in told.get("replicas", ()) if one["status"] == "ok"}

    def waits(self, is_so: Callable[[], object], seconds: float = SOON) -> None:
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, self.errors.read_text()[-2000:]
            time.sleep(0.05)


def asked(said: str, tokens: int = 16, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": said}]
    return {"messages": messages, "max_tokens": tokens, "temperature": 0.0} | more


def started(
    replicas: int = 2,
    most: int = 2,
    address: str = "local",
    seconds: float = HELD,
    delays: tuple[float, ...] = (),
    **environment: str,
) -> Served:
    folder = Path(tempfile.mkdtemp(prefix="sr-"))
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    script = TESTS / "cluster" / "stub_server.py"
    process = subprocess.Popen(
        [sys.executable, str(script), *map(str, (replicas, most, address, seconds, *delays))],
        stdout=subprocess.PIPE, stderr=open(folder / "errors", "w"), text=True,  # noqa: SIM115
        env={**os.environ, "PYTHONPATH": path, **environment},
    )  # fmt: skip
    assert process.stdout is not None
    line: list[str] = []
    reader = threading.Thread(target=lambda: line.append(process.stdout.readline()))  # type: ignore[union-attr]
    reader.start()
    reader.join(START)
    told = Served(process, line[0].strip() if line else "", folder / "errors")
    if not told.address:
        ended(told)
        raise AssertionError(told.errors.read_text()[-3000:])
    return told


def ended(served: Served) -> None:
    if served.process.poll() is None:
        served.process.send_signal(signal.SIGTERM)
        try:
            served.process.wait(SOON)
        except subprocess.TimeoutExpired:
            for one in (*children(served.process.pid), psutil.Process(served.process.pid)):
                one.kill()
    served.process.wait(SOON)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    one = started()
    yield one
    ended(one)


def test_replicas_say_what_one_server_says(served: Served) -> None:
    """The same text, whole and streamed, of whichever replica, seeded ones too."""
    wanted = [("hello hello hello", {}), ("once upon", {"seed": 7, "temperature": 1.0})]
    with running(method="prompt-lookup") as plain:
        own = [
            plain.client.chat.completions.create(model="tiny", **asked(said, 24, **more))
            for said, more in wanted
        ]
    for (said, more), answer in zip(wanted, own, strict=True):
        text = answer.choices[0].message.content
        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(lambda n, s=said, m=more: served.ask(s, 24, **m), range(8)))
        assert {one.json()["choices"][0]["message"]["content"] for one in told} == {text}
        assert len({one.headers["x-sooner-replica"] for one in told}) == 2
        create = served.client.chat.completions.create
        for _ in range(4):
            stream = create(model="org/tiny", stream=True, **asked(said, 24, **more))
            assert streamed(stream)[0] == text


def refusal(port: int, token: str = "") -> Any:
    """The status of a call that says nothing."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/ray.serve.ASGIService/HandleRequest")
        try:
            call(b"", timeout=SOON, metadata=[("authorization", f"Bearer {token}")][: bool(token)])
        except grpc.RpcError as error:
            return error.code()  # type: ignore[attr-defined]
    return None


@dataclass
class Stream:
    """What came of a stream."""

    replica: str
    lines: list[str]

    @property
    def is_whole(self) -> bool:
        return self.lines[-1] == "data: [DONE]"

    @property
    def error(self) -> str:
        last = json.loads(self.lines[-1].removeprefix("data: ")) if not self.is_whole else {}
        return str(last.get("error", {}).get("code", ""))


def read(served: Served, said: str, tokens: int, begun: threading.Semaphore) -> Stream:
    # Drawn at random, so that little is found to look up and it takes its time.
    body = asked(said, tokens, stream=True, ignore_eos=True, temperature=1.0, seed=1)
    with httpx.stream("POST", served.address + CHAT, json=body, timeout=SOON) as told:
        assert told.status_code == 200, told.read()
        lines = []
        for line in told.iter_lines():
            if line.startswith("data: "):
                lines.append(line)
                if len(lines) == 3:
                    begun.release()
        return Stream(told.headers["x-sooner-replica"], lines)


@pytest.mark.slow
def test_a_killed_replica(served: Served) -> None:
    """Streams that it began end with an error, the rest is answered, and another one comes."""
    before = served.well()
    begun = threading.Semaphore(0)
    with ThreadPoolExecutor(12) as pool:
        streams = [pool.submit(read, served, f"{at} begins", 200, begun) for at in range(4)]
        for _ in streams:
            assert begun.acquire(timeout=SOON)
        # All rows are taken: these wait.
        waiting = [pool.submit(served.ask, f"{at} waits", 8) for at in range(6)]
        served.waits(lambda: busy(served) == 10)
        served.replicas()[0].kill()
        ends = [one.result(SOON) for one in streams]
        answers = [one.result(SOON) for one in waiting]
    assert [one.status_code for one in answers] == [200] * 6
    (gone,) = {one.replica for one in ends if not one.is_whole}
    assert {one.replica for one in ends if one.is_whole} == before - {gone}
    for one in ends:
        assert one.is_whole or one.error == "replica_lost"
        assert one.is_whole or "data: [DONE]" not in one.lines
    assert {one.headers["x-sooner-replica"] for one in answers} == before - {gone}
    assert httpx.get(served.address + "/ready").status_code == 200
    served.waits(lambda: len(served.well()) == 2)
    assert gone not in served.well()
    text = httpx.get(served.address + "/metrics", timeout=SOON).text
    assert "sooner:streams_cut_total 2.0" in text


def busy(served: Served) -> int:
    told = httpx.get(served.address + "/health", timeout=SOON).json()
    return sum(one["running"] + one["waiting"] for one in told["replicas"])


@pytest.mark.slow
def test_a_client_that_leaves_frees_its_row(served: Served) -> None:
    # Drawn at random, so that little is found to look up: a second, four if nothing is.
    body = asked("and on and on", 200, stream=True, ignore_eos=True, temperature=1.0, seed=1)
    begun = time.monotonic()
    with httpx.stream("POST", served.address + CHAT, json=body, timeout=SOON) as told:
        assert told.status_code == 200, told.read()
        frames = (line for line in told.iter_lines() if line)
        assert [next(frames) for _ in range(2)]
        assert busy(served) == 1, time.monotonic() - begun
    served.waits(lambda: busy(served) == 0, 5.0)


def test_sigterm_drains_and_leaves_nothing(served: Served) -> None:
    """The last one: it ends the server."""
    everything = [psutil.Process(served.process.pid), *children(served.process.pid)]
    begun = threading.Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(read, served, "to the end", 440, begun)  # seconds of it
        assert begun.acquire(timeout=SOON)
        served.process.send_signal(signal.SIGTERM)
        served.waits(lambda: httpx.get(served.address + "/ready").status_code == 503, 5.0)
        refused = served.ask("too late")
        assert stream.result(SOON).is_whole
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert served.process.wait(SOON) == 0
    _, alive = psutil.wait_procs(everything, 10)
    assert not alive
    # The front's own words about the replica that was killed, and none of Ray's.
    told = served.errors.read_text().splitlines()
    assert all(line.startswith("WARNING:  replica ") for line in told), told
