"""`sooner serve --ray-address HOST:PORT` on a cluster that others started, and that stays."""

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

import httpx
import pytest
from ray_nodes import RayNodes

from cluster.test_serve_replicas import CHAT, SOON, START, chat_body

pytest.importorskip("ray.serve")

INTERRUPTED = 130

DRIVER = """
import json, sys
import ray

ray.init(address=sys.argv[1], _node_ip_address="127.0.0.1", log_to_driver=False)
assert ray.get(ray.remote(num_cpus=0)(lambda: "works").remote()) == "works"
print(json.dumps([one["name"] for one in ray.util.list_named_actors(all_namespaces=True)]))
"""
"""Another user of the cluster, who lists its actors."""


@pytest.fixture
def nodes() -> Iterator[RayNodes]:
    head = RayNodes(2)
    try:
        head.wait(1)
        yield head
    finally:
        head.close()


def actors_seen_by_others(nodes: RayNodes) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, nodes.address],
        capture_output=True, text=True, timeout=START, env={**os.environ, **nodes.environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names


class Command:
    """`sooner serve miniature --ray ADDRESS`, once it answers.

    Attributes:
        url: where.
    """

    def __init__(self, nodes: RayNodes, log: Path) -> None:
        self.log = log
        with open(log, "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sooner.cli", "serve", "miniature", "--ray",
                 "--ray-address", nodes.address, "--port", "0"],
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
        assert "sooner:generation_tokens_total" in metrics
        assert answer.headers["x-sooner-replica"]
        assert command.interrupt() == INTERRUPTED
        output = command.log.read_text()
    finally:
        command.close()
    assert output.count("\n") == 5, output  # none of Ray's
    assert nodes.nodes[0].poll() is None
    assert actors_seen_by_others(nodes) == []
