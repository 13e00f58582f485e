"""Figures of a run, and times of a device behind the host: nothing waits for them, none is lost."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import sooner
import tiny
from sooner.engine.loop import Decoding
from sooner.engine.stats import run as timing
from sooner.engine.stats.run import Stats
from sooner.methods.sd_tree import STATIC_TREE


def test_a_run_without_steps_has_the_figures_of_plain_decoding() -> None:
    stats = Stats()
    assert stats.mean_acceptance_length == 1.0
    assert (stats.aal, stats.acceptance_rate, stats.accepted_run_length) == (0.0, 0.0, 0.0)
    assert (stats.num_spec_steps, stats.tokens_per_second) == (0, 0.0)


def test_figures_follow_from_the_steps() -> None:
    stats = Stats()
    for accepted in (4, 0, 2, 4):
        stats.record_step(0, drafted=4, accepted=accepted, committed=accepted + 1)
    assert stats.acceptance_histogram == {4: 2, 0: 1, 2: 1}
    assert stats.num_spec_steps == 4
    assert stats.num_draft_tokens == 16
    assert stats.num_accepted_draft_tokens == 10
    assert stats.acceptance_rate == 10 / 16
    assert stats.aal == 2.5
    assert stats.mean_acceptance_length == 3.5
    assert stats.decode_tokens == 14


def test_accepted_run_length_counts_tokens_between_two_rejections_of_a_row() -> None:
    stats = Stats()
    stats.record_step(0, 4, 4, 5)
    stats.record_step(1, 4, 1, 2)  # row 1 rejects at once: a run of 2
    stats.record_step(0, 4, 3, 4)  # row 0: 5 + 4
    stats.record_step(0, 4, 4, 5)  # never rejected: closed at the end
    stats.close_runs()
    assert stats.runs == [2, 9, 5]
    assert stats.accepted_run_length == pytest.approx(16 / 3)
    stats.close_runs()
    assert stats.runs == [2, 9, 5], "closing twice adds nothing"


def test_the_dictionary_has_the_designs_names_and_is_json() -> None:
    stats = Stats(method="x")
    stats.record_step(0, 2, 1, 2)
    stats.note("why")
    figures = json.loads(json.dumps(stats.as_dict()))
    names = {
        "num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens",
        "mean_acceptance_length", "acceptance_histogram", "accepted_run_length", "aal", "nfe",
        "mode",
    }  # fmt: skip
    assert names <= set(figures)
    assert (figures["mode"], figures["notes"]) == ("exact", ["why"])


def test_a_phase_within_another_takes_its_time_out_of_it() -> None:
    stats, ticks = Stats(), iter([0.0, 1.0, 4.0, 5.0, 7.0, 10.0])
    stats.timeline.mark = lambda: next(ticks)  # type: ignore[method-assign]
    with stats.phase("draft"):
        with stats.phase("draft_prefill"):
            pass
        with pytest.raises(ValueError, match="late"), stats.phase("vision"):
            raise ValueError("late")
    assert stats.seconds["draft_prefill"] == 3.0
    assert stats.seconds["vision"] == 2.0
    assert stats.seconds["draft"] == 5.0
    assert stats.total_seconds == 10.0


@dataclass
class Device:
    """A stream that does its work when it is told to; a second passes with each event.

    Attributes:
        now: seconds of the host.
        reached: moments up to which the device has come.
        waits: how often the host waited.
    """

    now: float = 0.0
    reached: float = -1.0
    waits: int = 0
    events: list[LateEvent] = field(default_factory=list)

    def event(self, device: torch.device) -> LateEvent:
        self.now += 1.0
        made = LateEvent(self, self.now)
        self.events.append(made)
        return made

    def catch_up(self) -> None:
        self.reached = self.now


@dataclass
class LateEvent:
    """An event that is passed when its device says so."""

    device: Device
    at: float

    def query(self) -> bool:
        return self.at <= self.device.reached

    def elapsed_time(self, end_event: LateEvent) -> float:
        assert self.query()
        assert end_event.query(), "CUDA raises where an event is not passed"
        return 1e3 * (end_event.at - self.at)

    def synchronize(self) -> None:
        self.device.waits += 1
        self.device.catch_up()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Every run's times come from events, which the CPU plays."""
    late = Device()
    monkeypatch.setitem(timing.EVENTS, "cpu", late.event)
    return late


def test_an_interval_tells_its_seconds_whenever_they_are_known() -> None:
    seconds: list[float] = []
    interval = timing.Interval()
    interval.then(seconds.append)
    assert seconds == []
    interval.end(2.0)
    interval.then(seconds.append)
    assert seconds == [2.0, 2.0]


def test_phases_of_a_late_device_count_every_second_once(device: Device) -> None:
    stats = Stats()
    with stats.phase("other"):  # 1
        with stats.phase("draft"), stats.phase("draft_prefill") as spent:  # 2, and 3 to 4
            pass
        started = stats.mark()  # 6
        stats.move("verify", stats.between(started, stats.mark()))  # to 7
    seconds: list[float] = []
    spent.then(seconds.append)
    assert stats.total_seconds == 0.0
    assert seconds == []
    stats.timeline.settle()
    assert stats.total_seconds == 0.0, "the device has not got there"
    device.reached = 4.0
    stats.timeline.settle()
    assert stats.seconds["draft_prefill"] == 1.0
    assert seconds == [1.0]
    assert stats.total_seconds == 1.0
    device.catch_up()
    stats.timeline.settle()
    assert stats.seconds["draft"] == 2.0
    assert stats.seconds["verify"] == 1.0
    assert stats.seconds["other"] == 8.0 - 1.0 - 3.0 - 1.0
    assert stats.total_seconds == 7.0
    assert device.waits == 0


METHODS: dict[str, Any] = {
    "plain": sooner.Autoregressive,
    "speculative": lambda: sooner.Speculative(tiny.model("llama"), "auto"),
    "sd-tree": lambda: sooner.SDTree(tiny.model("llama"), STATIC_TREE),
    "eagle": lambda: sooner.Eagle(tiny.head("llama"), nodes="auto"),
    "hsd": lambda: sooner.HSD([[[5, 6, 7]]]),
    "jacobi": lambda: sooner.CoupledJacobi(4),
}


@pytest.mark.parametrize("name", METHODS)
def test_nothing_waits_while_rows_decode(
    name: str, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round's report is read behind its events, and they are passed by then; no round waits."""
    settled = timing.Timeline.settle

    def settle(line: timing.Timeline) -> None:
        device.reached = device.now - 1  # what was recorded last may be on its way
        settled(line)

    monkeypatch.setattr(timing.Timeline, "settle", settle)
    waits: list[int] = []
    round_ = Decoding.round

    def watched(decoding: Decoding) -> None:
        round_(decoding)
        waits.append(device.waits)

    monkeypatch.setattr(Decoding, "round", watched)
    inputs = tiny.inputs("llama", "text", 1)
    result = sooner.generate(
        tiny.model("llama"), inputs, METHODS[name](), max_new_tokens=24, eos_token_id=None,
        do_sample=False,
    )  # fmt: skip
    assert len(waits) > 3
    assert set(waits) == {0}
    stats = result.stats
    forwards = sum(map(len, stats.verify_seconds.values()))
    assert forwards == stats.nfe - 1, "each is known in the end"
    assert stats.seconds["verify"] == pytest.approx(
        sum(sum(times) for times in stats.verify_seconds.values())
    )
    first, last = device.events[0], device.events[-1]
    assert 0 < stats.total_seconds <= last.at - first.at
    assert stats.decode_seconds > 0
