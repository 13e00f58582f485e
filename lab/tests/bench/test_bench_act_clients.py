"""The clients' table: processes apart, Nagle off, like with like, and a sentence from its JSON."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest

import tiny_policy
from sooner.serve import run
from sooner_lab.bench.act import clients as bench
from sooner_lab.bench.act.clients_table import clients_table, gain_sentence
from sooner_lab.bench.act.goals import goals
from sooner_lab.bench.act.load import Load
from sooner_lab.bench.act.observations import Recorded
from sooner_lab.bench.act.settings import ActSettings
from sooner_lab.bench.cores import split_cores

SETTINGS = ActSettings(clients=(1, 3), requests=2)


def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr(bench, "LEAST", 12)
    monkeypatch.setattr(bench, "DIRECT", 2)
    seen = [Recorded("table", one, None) for one in tiny_policy.observations(3)]
    before = os.sched_getaffinity(0)
    rows = bench.clients(SETTINGS, tiny_policy.policy(head=True), seen, lambda text: None)
    assert os.sched_getaffinity(0) == before
    return json.loads(json.dumps(rows))


def test_rows_say_what_they_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measured(monkeypatch)
    assert [(row["method"], row["clients"]) for row in rows] == [
        ("plain", 1), ("plain", 3), ("auto", 1), ("auto", 3),
    ]  # fmt: skip
    server, asking = split_cores()
    for row in rows:
        assert row["no_delay"] is True
        assert (row["server_cores"], row["client_cores"]) == (server, asking)
        assert row["requests"] >= 12
        assert row["lost"] == 0
        assert row["interval"][0] <= row["requests_per_second"] <= row["interval"][1]
        assert row["direct_ms"] > 0
    for one, most in (rows[:2], rows[2:]):
        assert one["times_one"] == 1
        ratio = most["requests_per_second"] / one["requests_per_second"]
        assert most["times_one"] == pytest.approx(ratio)
        assert 0 <= most["requests"] - one["requests"] < 3 * most["clients"]  # whole requests


def test_a_server_with_nagle_on_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_was(settings: Any) -> socket.socket:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.bind((settings.host, 0))
        listening.listen(8)
        return listening

    build = run.build_server

    def on_asyncio(*given: Any) -> Any:
        """uvloop turns Nagle's algorithm off on any socket, asyncio where the protocol is told."""
        server = build(*given)
        server.config.loop = "asyncio"
        return server

    monkeypatch.setattr(run, "bind", as_it_was)
    monkeypatch.setattr(run, "build_server", on_asyncio)
    rows = measured(monkeypatch)
    assert not any(row["no_delay"] for row in rows)
    assert "Nagle's algorithm is ON" in clients_table(rows).remark


def row(method: str, count: int, rate: float, **more: Any) -> dict[str, Any]:
    made = bench._row(method, count, [Load([0.1] * 40, 0, 40 / rate, True)] * 3)
    return {**made, "times_one": rate / 10, "direct_ms": 9.0, **more}


def test_the_sentence_is_made_of_the_rows() -> None:
    cores = {"server_cores": [0], "client_cores": [1]}
    rows = [row("plain", 1, 10, **cores), row("plain", 8, 17, **cores)]
    rows += [row("auto", 1, 10, **cores), row("auto", 8, 24, **cores)]
    told = (
        "8 clients get the actions a second of 1 1.7 times with `plain` and 2.4 times with `auto`."
    )
    assert gain_sentence(rows) == told
    table = clients_table(rows)
    assert "server runs on core 0, the clients in a process on core 1" in table.remark
    assert "off on both sides" in table.remark
    assert len(table.rows[0]) == len(table.heads)
    shared = clients_table([{**one, "client_cores": [0]} for one in rows]).remark
    assert "two processes that share core 0" in shared


def test_goals_compare_rows_of_one_method() -> None:
    rows = [row("plain", 1, 10), row("plain", 8, 30), row("auto", 1, 20), row("auto", 8, 40)]
    told = goals({"settings": {"chosen": 9}, "clients": rows})
    limit = 2 * rows[2]["p50_ms"] * 8 / 2
    assert told[0]["reached"] == pytest.approx(rows[3]["p99_ms"] / limit)
