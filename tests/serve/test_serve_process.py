"""The server on a real socket, and the example of a client."""

from __future__ import annotations

import runpy
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.robots import WAIT, body_of, post, raw, request, served
from sooner.errors import SoonerError
from sooner.serve.run import bind
from sooner.serve.settings import ServeSettings
from sooner.tasks.act import Observation
from tiny_policy import INSTRUCTIONS, image, policy

pytestmark = pytest.mark.slow


def test_eight_clients_at_once_lose_nothing_among_bad_and_broken_ones() -> None:
    local_policy = policy()
    seen = [Observation(image(seed), INSTRUCTIONS[seed % 3]) for seed in range(8)]
    expected = [action.values for action in local_policy.act(seen, method="plain")]
    barrier = threading.Barrier(9, timeout=WAIT)

    def robot(address: str, seed: int) -> list[Any]:
        barrier.wait()
        return [post(address, body_of(request(seed)))[1] for _ in range(3)]

    def nuisance(address: str) -> None:
        """Hangs up in the middle of a request, again and again, or sends what is none."""
        host, port = address.removeprefix("http://").split(":")
        barrier.wait()
        whole = b"POST /act HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{"
        sent = body_of(request())
        head = f"POST /act HTTP/1.1\r\nHost: a\r\nContent-Length: {len(sent)}\r\n\r\n".encode()
        for data in (whole, head + sent, b"GET", b"\x00" * 100, whole, head + sent):
            with socket.create_connection((host, int(port)), timeout=WAIT) as connection:
                connection.sendall(data)

    with served(local_policy, max_batch=8) as address, ThreadPoolExecutor(9) as pool:
        pests = pool.submit(nuisance, address)
        answers = list(pool.map(lambda seed: robot(address, seed), range(8)))
        pests.result()
        status, error = post(address, b"{}")
        assert (status, error["error"]["param"]) == (400, "image")
        assert raw(address, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    for got, exact in zip(answers, expected, strict=True):
        for values in got:
            np.testing.assert_array_equal(values, exact)


def test_an_address_in_use_is_named() -> None:
    with bind(ServeSettings(port=0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(SoonerError, match=f"can't listen on 127.0.0.1 port {port}"):
            bind(ServeSettings(port=port))
    with pytest.raises(SoonerError, match="can't listen on 192\\.0\\.2\\.1"):
        bind(ServeSettings(host="192.0.2.1", port=0, token="secret"))


def test_the_example_drives_a_robot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "act_client.py"
    with served(policy()) as address:
        monkeypatch.setattr("sys.argv", ["act_client.py", "--url", address, "--steps", "3"])
        runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out == "'reach the blue ball': not done, 3 actions\n"
