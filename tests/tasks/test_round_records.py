"""The clock of a run that is watched: what is told meanwhile is no part of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from sooner.tasks import round_records
from sooner.tasks.round_records import Watch


def test_a_forward_never_ends_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(round_records, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def tell(rounds: list) -> None:
        clock.now += 10.0  # from 101 to 111 of the world's clock: all of it second 1 of the run

    spans = [(100.5, 100.75), (100.5, 105.0), (102.0, 110.0), (110.0, 111.5), (112.0, 113.0)]
    drafter = SimpleNamespace(forward_spans=lambda: spans, on_verify_start=lambda *given: None)
    session = SimpleNamespace(drafter=drafter, on_logits=None, on_tokens=None)
    watch = Watch(tell)
    watch.start()
    watch.attach(session)  # type: ignore[arg-type]
    session.drafter.on_verify_start(SimpleNamespace(nodes=0, rows=1), None)
    clock.now = 101.0
    session.on_logits(0, [7], torch.zeros(1, 9))
    session.on_tokens(0, [7], 0)
    wanted = [(0.5, 0.75), (0.5, 1.0), (1.0, 1.0), (1.0, 1.5), (2.0, 3.0)]
    assert watch.drafted_beside() == wanted
    clock.now = 113.0
    assert watch.now() == 3.0
