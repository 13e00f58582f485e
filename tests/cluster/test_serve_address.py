"""`sooner serve --ray HOST:PORT` on a cluster that others started, and that stays."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ray_nodes import RayNodes

from cluster.test_serve_replicas import CHAT, SOON, START, chat_body

pytest.importorskip("ray.serve")

INTERRUPTED = 130

DRIVER = """
import json, sys
import ray
from ray import serve

ray.init(address=sys.argv[1], _node_ip_address="127.0.0.1", log_to_driver=False)
if sys.argv[2] == "deploy":
    @serve.deployment(ray_actor_options={"num_cpus": 0.1})
    class Other:
        def __call__(self):
            return "other"
    serve.start(proxy_location="Disabled")
    serve.run(Other.bind(), name="other", route_prefix=None)
named = ray.util.list_named_actors(all_namespaces=True)
asked = serve.get_app_handle("other").remote().result() if sys.argv[2] != "look" else ""
print(json.dumps({
    "actors": [one["name"] for one in named],
    "task": ray.get(ray.remote(num_cpus=0)(lambda: "works").remote()),
    "other": asked,
}))
"""
"""Another user of the cluster: has an application of his own, asks it, or only looks."""


@pytest.fixture
def nodes() -> Iterator[RayNodes]:
    head = RayNodes(2)
    try:
        head.wait_for_all()
        yield head
    finally:
        head.close()


def other_user(nodes: RayNodes, what: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, nodes.address, what],
        capture_output=True, text=True, timeout=START, env={**os.environ, **nodes.environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["task"] == "works"
    return result


class Command:
    """`sooner serve miniature --ray ADDRESS`, once it answers.

    Attributes:
        url: where.
    """

    def __init__(self, nodes: RayNodes, log: Path) -> None:
        self.log = log
        with open(log, "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sooner.cli", "serve", "miniature", "--ray", nodes.address,
                 "--port", "0"],
                stdout=output, stderr=output, env={**os.environ, **nodes.environment},
            )  # fmt: skip
        self.url = ""

    def wait(self) -> None:
        for _ in range(int(START / 0.2)):
            if match := re.search(
                r"miniature answers at (http://[\d.:]+)/v1", self.log.read_text()
            ):
                self.url = match[1]
                return
            assert self.process.poll() is None, self.log.read_text()
            threading.Event().wait(0.2)
        raise AssertionError(self.log.read_text())

    def interrupt(self) -> int:
        """Ctrl-C; the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(SOON)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.mark.slow
def test_a_cluster_is_used_and_left_as_it_was(nodes: RayNodes, tmp_path: Path) -> None:
    command = Command(nodes, tmp_path / "log")
    try:
        command.wait()
        answer = httpx.post(command.url + CHAT, json=chat_body("what is seen?", 8), timeout=SOON)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] > 0
        metrics = httpx.get(command.url + "/metrics", timeout=SOON).text
        replica = answer.headers["x-sooner-replica"]
        assert re.search(rf'sooner:generation_tokens_total{{.*replica="{replica}"}}', metrics)
        assert command.interrupt() == INTERRUPTED
        output = command.log.read_text()
    finally:
        command.close()
    assert output.count("\n") == 5, output  # none of Ray's
    assert nodes.nodes[0].poll() is None
    assert other_user(nodes, "look")["actors"] == []
