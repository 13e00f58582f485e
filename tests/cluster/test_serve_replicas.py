"""`RayServer` on a real Ray: two replicas of a tiny model behind one address, killed and drained.

Tests share one server, in their order; the last one ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
START, SOON = 600.0, 60.0
LONG = 400
"""Tokens of a stream that is under way while `/health` is read several times."""
REPLICAS, SESSIONS = 2, 12
"""So many sessions that each replica is the home of some."""
DELAY = 0.01
"""Seconds of a forward."""

LOOPBACKS = ("127.0.0.1", "::ffff:127.0.0.1", "::1")


@dataclass
class Served:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    address: str
    errors: Path

    @property
    def client(self) -> Any:
        return openai.OpenAI(base_url=f"{self.address}/v1", api_key="none", max_retries=0)

    def ask(self, text: str, tokens: int = 16, **more: Any) -> httpx.Response:
        return httpx.post(self.address + CHAT, json=chat_body(text, tokens, **more), timeout=SOON)

    def replicas(self) -> list[psutil.Process]:
        """Processes of replicas that have come up."""
        processes = []
        for child in children(self.process.pid):
            try:
                name = " ".join(child.cmdline()[:1])
            except psutil.Error:
                continue
            if "ServeReplica" in name:
                processes.append(child)
        return processes

    def counts(self) -> dict[str, float]:
        """Requests that run or wait, by replica, of those that answer."""
        counts: dict[str, float] = {}
        for number in range(SESSIONS):
            session = {"X-Session-Id": str(number)}
            answer = httpx.get(self.address + "/health", headers=session, timeout=SOON)
            if answer.status_code == 200:
                load = answer.json()
                counts[answer.headers["x-sooner-replica"]] = load["running"] + load["waiting"]
            if len(counts) == REPLICAS:  # at once, for what runs meanwhile ends
                break
        return counts

    def well(self) -> set[str]:
        """Replicas that answer."""
        return set(self.counts())

    def waits(self, is_so: Callable[[], object], seconds: float = SOON) -> None:
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, self.errors.read_text()[-2000:]
            time.sleep(0.05)


def chat_body(text: str, tokens: int = 16, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "max_tokens": tokens, "temperature": 0.0} | more


def started(
    replicas: int = REPLICAS,
    maximum: int = REPLICAS,
    address: str = "local",
    seconds: float = DELAY,
    delays: tuple[float, ...] = (),
    **environment: str,
) -> Served:
    folder = Path(tempfile.mkdtemp(prefix="sr-"))
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    script = TESTS / "cluster" / "stub_server.py"
    process = subprocess.Popen(
        [sys.executable, str(script), *map(str, (replicas, maximum, address, seconds, *delays))],
        stdout=subprocess.PIPE, stderr=open(folder / "errors", "w"), text=True,  # noqa: SIM115
        env={**os.environ, "PYTHONPATH": path, **environment},
    )  # fmt: skip
    assert process.stdout is not None
    line: list[str] = []
    reader = threading.Thread(target=lambda: line.append(process.stdout.readline()))  # type: ignore[union-attr]
    reader.start()
    reader.join(START)
    server = Served(process, line[0].strip() if line else "", folder / "errors")
    if not server.address:
        ended(server)
        raise AssertionError(server.errors.read_text()[-3000:])
    return server


def ended(served: Served) -> None:
    if served.process.poll() is None:
        served.process.send_signal(signal.SIGTERM)
        try:
            served.process.wait(SOON)
        except subprocess.TimeoutExpired:
            for process in (*children(served.process.pid), psutil.Process(served.process.pid)):
                process.kill()
    served.process.wait(SOON)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    server = started()
    yield server
    ended(server)


def test_replicas_answer_as_a_single_server(served: Served) -> None:
    """Replicas give equal texts, whole and streamed, seeded ones too."""
    cases = [("hello hello hello", {}), ("once upon", {"seed": 7, "temperature": 1.0})]
    with running(method="prompt-lookup") as plain:
        answers = [
            plain.client.chat.completions.create(model="tiny", **chat_body(prompt, 24, **more))
            for prompt, more in cases
        ]
    for (prompt, more), answer in zip(cases, answers, strict=True):
        text = answer.choices[0].message.content
        with ThreadPoolExecutor(8) as pool:
            responses = list(pool.map(lambda n, s=prompt, m=more: served.ask(s, 24, **m), range(8)))
        assert {response.json()["choices"][0]["message"]["content"] for response in responses} == {
            text
        }
        assert len({response.headers["x-sooner-replica"] for response in responses}) == 2
        create = served.client.chat.completions.create
        for _ in range(4):
            stream = create(model="org/tiny", stream=True, **chat_body(prompt, 24, **more))
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
        return self.lines[-1:] == ["data: [DONE]"]


def read(served: Served, text: str, tokens: int, begun: threading.Semaphore) -> Stream:
    # Drawn at random, so that little is found to look up and it takes its time.
    body = chat_body(text, tokens, stream=True, ignore_eos=True, temperature=2.0, seed=1)
    with httpx.stream("POST", served.address + CHAT, json=body, timeout=SOON) as response:
        assert response.status_code == 200, response.read()
        lines = []
        with suppress(httpx.RemoteProtocolError):  # it is cut where its replica is killed
            for line in response.iter_lines():
                if line.startswith("data: "):
                    lines.append(line)
                    if len(lines) == 3:
                        begun.release()
        return Stream(response.headers["x-sooner-replica"], lines)


@pytest.mark.slow
def test_a_killed_replica(served: Served) -> None:
    """Its requests are cut or get a 500, those of the other one are answered, and another comes."""
    before = served.well()
    begun = threading.Semaphore(0)
    with ThreadPoolExecutor(12) as pool:
        streams = [pool.submit(read, served, f"{at} begins", LONG, begun) for at in range(4)]
        for _ in streams[1:]:  # three may be of one replica, which has two rows
            assert begun.acquire(timeout=SOON)
        # All rows are taken, or nearly so: these wait.
        waiting = [pool.submit(served.ask, f"{at} waits", 8) for at in range(5)]
        served.waits(lambda: busy(served) == 9)
        served.replicas()[0].kill()
        ends = [item.result(SOON) for item in streams]
        answers = [item.result(SOON) for item in waiting]
    assert {item.status_code for item in answers} <= {200, 500}
    answers = [item for item in answers if item.status_code == 200]
    (gone,) = {item.replica for item in ends if not item.is_whole}
    assert {item.replica for item in ends if item.is_whole} <= before
    assert all("data: [DONE]" not in item.lines for item in ends if not item.is_whole)
    assert {item.headers["x-sooner-replica"] for item in answers} <= before - {gone}
    assert httpx.get(served.address + "/ready").status_code == 200
    served.waits(lambda: len(served.well()) == 2)
    assert gone not in served.well()


def busy(served: Served) -> float:
    return sum(served.counts().values())


@pytest.mark.slow
def test_a_client_that_leaves_frees_its_row(served: Served) -> None:
    # Drawn at random, so that little is found to look up: a second, four if nothing is.
    body = chat_body("and on and on", LONG, stream=True, ignore_eos=True, temperature=2.0, seed=1)
    begun = time.monotonic()
    with httpx.stream("POST", served.address + CHAT, json=body, timeout=SOON) as response:
        assert response.status_code == 200, response.read()
        frames = (line for line in response.iter_lines() if line)
        assert [next(frames) for _ in range(2)]
        assert busy(served) == 1, time.monotonic() - begun
    served.waits(lambda: busy(served) == 0, 5.0)


def test_nothing_of_ray_listens_beyond_the_loopback(served: Served) -> None:
    """But for Ray Serve's ports of replicas, which it opens on all addresses (2.60): nobody is let
    in there without the run's token."""
    replicas, beyond = served.replicas(), []
    for one in (psutil.Process(served.process.pid), *children(served.process.pid)):
        for socket in one.net_connections("inet"):
            if socket.status != psutil.CONN_LISTEN or socket.laddr.ip in LOOPBACKS:
                continue
            assert one in replicas, (one, socket)
            beyond.append((socket.laddr.port, one.environ()["RAY_AUTH_TOKEN"]))
    assert len(beyond) == 2
    assert len({token for _, token in beyond}) == 1
    for port, token in beyond:
        assert refusal(port) == refusal(port, "wrong" * 8) == grpc.StatusCode.UNAUTHENTICATED
        assert refusal(port, token) not in (None, grpc.StatusCode.UNAUTHENTICATED)


def test_sigterm_drains_and_leaves_nothing(served: Served) -> None:
    """The last one: it ends the server."""
    everything = [psutil.Process(served.process.pid), *children(served.process.pid)]
    begun = threading.Semaphore(0)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(read, served, "to the end", 440, begun)  # seconds of it
        assert begun.acquire(timeout=SOON)
        served.process.send_signal(signal.SIGTERM)
        served.waits(lambda: httpx.get(served.address + "/ready").status_code != 200, 5.0)
        assert served.ask("too late").status_code in (404, 503)
        assert stream.result(SOON).is_whole
    assert served.process.wait(SOON) == 0
    _, alive = psutil.wait_procs(everything, 10)
    assert not alive
    assert served.errors.read_text() == ""
