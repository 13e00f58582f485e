"""The server on a real socket, and the client that ships with it."""

from __future__ import annotations

import runpy
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from serve.robots import WAIT, body_of, post, raw, request, served
from sooner.errors import SoonerError
from sooner.serve.run import bind
from sooner.serve.settings import ServeSettings
from sooner.tasks.act import Observation, RemotePolicy
from tiny_policy import INSTRUCTIONS, image, policy

pytestmark = pytest.mark.slow


def test_eight_clients_at_once_lose_nothing_among_bad_and_broken_ones() -> None:
    local_policy = policy()
    seen = [Observation(image(seed), INSTRUCTIONS[seed % 3]) for seed in range(8)]
    expected = [action.values for action in local_policy.act(seen, method="plain")]
    barrier = threading.Barrier(9, timeout=WAIT)

    def robot(address: str, seed: int) -> list[np.ndarray]:
        client = RemotePolicy(address, timeout=WAIT)
        barrier.wait()
        return [client.act(seen[seed].image, seen[seed].instruction) for _ in range(3)]

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


def test_the_client_is_used_as_lerobots_policies_are() -> None:
    local_policy = policy()
    seen = Observation(image(4), INSTRUCTIONS[0])
    expected = local_policy.act([seen], method="plain")[0].values
    with served(local_policy, token="secret") as address:
        client = RemotePolicy(address, token="secret", unnorm_key="table", deadline_ms=50_000)
        batch = {
            "observation.images.top": (seen.image.transpose(2, 0, 1)[None] / 255).astype("f4"),
            "task": [seen.instruction],
        }
        np.testing.assert_array_equal(client.select_action(batch), expected[0])
        np.testing.assert_array_equal(client.select_action({}), expected[1])  # said ahead
        np.testing.assert_array_equal(client.select_action(batch), expected[0])
        client.reset()
        image_only = {"observation.image": seen.image, "task": seen.instruction}
        np.testing.assert_array_equal(client.select_action(image_only), expected[0])
        client.reset()
        with pytest.raises(SoonerError, match="None as its task"):
            client.select_action({"observation.image": seen.image})
        with pytest.raises(SoonerError, match="has 2 pictures"):
            client.select_action({**batch, **image_only})
        with pytest.raises(SoonerError, match=r"refused \(401\): the token"):
            RemotePolicy(address).act(seen.image, "reach")
        with pytest.raises(SoonerError, match=r"refused \(400\): instruction is empty"):
            client.act(seen.image, " ")


def test_the_example_drives_a_robot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "act_client.py"
    with served(policy()) as address:
        monkeypatch.setattr("sys.argv", ["act_client.py", "--url", address, "--steps", "3"])
        runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out == "'reach the blue ball': not done, 3 actions\n"
