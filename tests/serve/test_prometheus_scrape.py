"""Prometheus scrapes `sooner serve miniature` by the example's config, and answers the board.

It is a program of its own: `prometheus` on the PATH, or what `SOONER_PROMETHEUS` names; without it
these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from serve.robots import WAIT
from serve.test_chat_metrics import BOARD, expressions
from serve.test_chat_process import Started, about, data_uri, start
from sooner import miniatures

PROGRAM = os.environ.get("SOONER_PROMETHEUS") or shutil.which("prometheus")
CONFIG = BOARD.parents[1] / "prometheus" / "prometheus.yml"
ADDRESS = "127.0.0.1:8000"
"""What the example scrapes."""

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="prometheus is not here; see SOONER_PROMETHEUS"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    started = start(tmp_path_factory.mktemp("served"), "miniature")
    yield started
    started.process.kill()
    started.process.wait()


@pytest.fixture(scope="module")
def prometheus(server: Started, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Prometheus that scrapes the server every second."""
    folder = tmp_path_factory.mktemp("prometheus")
    told = CONFIG.read_text(encoding="utf-8")
    assert ADDRESS in told
    told = told.replace(ADDRESS, server.address.removeprefix("http://"))
    (folder / "prometheus.yml").write_text(told.replace("interval: 5s", "interval: 1s"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    process = subprocess.Popen(
        [
            str(PROGRAM), f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"http://{address}/api/v1"
    finally:
        process.kill()
        process.wait()


def ask(address: str, path: str, **told: str) -> Any:
    answer = httpx.get(f"{address}/{path}", params=told, timeout=WAIT)
    said = answer.json()
    assert said["status"] == "success", (told, said)
    return said["data"]


def until_scraped(address: str, times: int) -> None:
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        try:
            found = ask(address, "query", query='count_over_time(up{job="sooner"}[5m])')["result"]
        except httpx.TransportError:
            found = []
        if found and float(found[0]["value"][1]) >= times:
            return
        time.sleep(0.5)
    raise AssertionError("Prometheus has scraped nothing")


def queries() -> list[str]:
    """Those of the board's panels, as Grafana fills them in."""
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    return [
        text.replace("$__rate_interval", "30s").replace("$model_name", "miniature")
        for text in expressions(board["panels"])
        if "sooner:" in text
    ]


def test_prometheus_reads_every_metric_with_its_type(prometheus: str, server: Started) -> None:
    until_scraped(prometheus, 2)
    [target] = ask(prometheus, "targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    types = {
        name: told[0]["type"]
        for name, told in ask(prometheus, "metadata").items()
        if name.startswith("sooner:")
    }
    written = dict(
        line.split()[2:4]
        for line in httpx.get(f"{server.address}/metrics").text.splitlines()
        if line.startswith("# TYPE sooner:") and not line.split()[2].endswith("_created")
    )
    known = {name: kind for name, kind in types.items() if not name.endswith("_created")}
    assert known == written
    assert set(written.values()) == {"counter", "gauge", "histogram"}


def test_every_panel_of_the_board_has_data(prometheus: str, server: Started) -> None:
    """A rate needs two scrapes of a counter, which some have only once there is what they count."""
    until_scraped(prometheus, 2)
    left, deadline = set(queries()), time.monotonic() + WAIT
    assert len(left) > 20
    while left:
        assert time.monotonic() < deadline, left
        told = httpx.post(
            f"{server.address}/v1/chat/completions", json=about_the_sample(), timeout=WAIT
        )
        assert told.status_code == 200
        time.sleep(0.5)
        left = {text for text in left if not has_data(prometheus, text)}
    names = ask(prometheus, "label/model_name/values", **{"match[]": "sooner:num_requests_running"})
    assert names == ["miniature"]


def about_the_sample() -> dict[str, Any]:
    """A request whose drafts are accepted."""
    film = miniatures.find("video").sample
    assert film is not None
    return {"messages": about("video_url", data_uri(film)), "max_tokens": 30}


def has_data(address: str, text: str) -> bool:
    """Whether a query gives a number; one that Prometheus can't parse fails."""
    values = [float(one["value"][1]) for one in ask(address, "query", query=text)["result"]]
    return any(value == value for value in values)  # 0/0 is none
