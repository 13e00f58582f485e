"""The harness: turns, medians, the parity gate, theory, intervals, goals, and what is written."""

from __future__ import annotations

import pytest

from sooner.engine.stats.run import Stats
from sooner.errors import SoonerError
from sooner.parity import Parity
from sooner_lab.bench import run as harness
from sooner_lab.bench.goals import Goal, goal, worst
from sooner_lab.bench.run import (
    Arm,
    ArmSamples,
    Recorder,
    TimedRun,
    earlier_runs,
    measure,
    quotient,
    row,
    theory_speedup,
)

TOKENS = [[1, 2, 3, 4, 5]]


def stats(
    verify: dict[int, list[float]], tokens: int, draft: tuple[int, float] = (0, 0.0)
) -> Stats:
    made = Stats(decode_tokens=tokens)
    for block, times in verify.items():
        made.verify_seconds[block] = times
    forwards, each = draft
    made.draft_forwards, made.draft_forward_seconds = forwards, forwards * each
    made.draft_seconds = [each] * bool(forwards)
    made.seconds["verify"] = sum(sum(times) for times in verify.values())
    made.seconds["draft"] = forwards * each
    return made


def measured(
    name: str, seconds: list[float], parity: Parity | None = None, mode: str = "exact"
) -> ArmSamples:
    arm = Arm(name, lambda index: TimedRun(TOKENS, 1.0, 1.0, 4), mode)
    samples = [TimedRun(TOKENS, each, 2 * each, 4) for each in seconds]
    return ArmSamples(arm, [samples], [parity or Parity("identical")])


def test_arms_take_turns_after_a_warm_up_each_and_take_turns_in_being_first() -> None:
    order: list[tuple[str, int]] = []

    def arm(name: str) -> Arm:
        def run(index: int) -> TimedRun:
            order.append((name, index))
            return TimedRun(TOKENS, 1.0, 1.0, 4)

        return Arm(name, run)

    samples = measure([arm("a"), arm("b")], inputs=2, repeats=2)
    warm, timed = order[:2], order[2:]
    assert warm == [("a", 0), ("b", 0)]
    assert timed == [(name, index) for index in (0, 1) for turn in ("ab", "ba") for name in turn]
    assert [[len(runs) for runs in entry.samples] for entry in samples] == [[2, 2], [2, 2]]


def test_speed_ups_are_of_medians() -> None:
    plain = measured("plain", [2.0, 9.0, 2.0])
    fast = measured("fast", [1.0, 1.0, 50.0])
    figures = row(fast, plain)
    assert figures["decode_speedup"] == pytest.approx(2.0)
    assert figures["e2e_speedup"] == pytest.approx(2.0)
    assert figures["tokens_per_second"] == pytest.approx(4.0)


def test_a_red_gate_hides_every_speed() -> None:
    bug = Parity("bug", 3, 4, 5, 1.0, 1.0, 1e-4)
    figures = row(measured("fast", [1.0], bug), measured("plain", [2.0]))
    assert figures["parity"] == "bug"
    assert not {"decode_seconds", "decode_speedup", "e2e_speedup", "tokens_per_second"} & set(
        figures
    )


def test_a_tie_and_a_mode_that_is_not_exact_keep_their_speed() -> None:
    plain = measured("plain", [2.0])
    tie = Parity("tie", 3, 4, 5, 1e-6, 1e-6, 1e-4)
    bug = Parity("bug", 3, 4, 5, 1.0, 1.0, 1e-4)
    assert "decode_speedup" in row(measured("fast", [1.0], tie), plain)
    assert "decode_speedup" in row(measured("loose", [1.0], bug, mode="relaxed"), plain)


def test_theory_is_tokens_at_the_plain_price_over_what_was_spent() -> None:
    plain = [stats({1: [0.010, 0.010, 0.5]}, tokens=3)]
    fast = [stats({5: [0.012, 0.012, 0.012]}, tokens=12, draft=(12, 0.001))]
    assert theory_speedup(fast, plain) == pytest.approx(12 * 0.010 / (3 * 0.012 + 12 * 0.001))


def test_a_hidden_draft_costs_nothing_in_theory() -> None:
    plain = [stats({1: [0.010]}, tokens=1)]
    fast = stats({5: [0.012]}, tokens=4, draft=(4, 0.001))
    fast.draft_is_hidden = True
    assert theory_speedup([fast], plain) == pytest.approx(4 * 0.010 / 0.012)


def test_overhead_is_what_is_outside_forwards() -> None:
    single = stats({1: [0.01] * 9}, tokens=9)
    single.seconds["other"] = 0.01
    assert harness._overhead([single]) == pytest.approx(0.1)


def test_an_interval_holds_the_quotient_of_totals() -> None:
    ratio = quotient(([4.0, 6.0, 5.0], [1.0, 1.0, 1.0]), ([2.0, 3.0, 2.0], [1.0] * 3), seed=1)
    assert ratio["value"] == pytest.approx(15 / 7)
    low, high = ratio["interval"]
    assert low <= 15 / 7 <= high
    assert quotient(([], []), ([], []), 0) == {"value": None, "interval": None}


def test_parts_of_several_runs_keep_their_origins() -> None:
    first = {"provenance": 1, "settings": {}, "kept": [{"parts": ["a", "b"], "provenance": 0}]}
    earlier = earlier_runs(first, ["b", "c"])
    assert [(entry["parts"], entry["provenance"]) for entry in earlier] == [(["c"], 1), (["b"], 0)]


def test_a_recorder_goes_on_with_parts_of_the_same_model() -> None:
    before = {"model": "m", "settings": {}, "provenance": {"seed": 1}, "a": [1], "b": [2]}
    recorder = Recorder("x", {}, model="m")
    recorder.go_on(before, ["a", "c"])
    assert recorder.result["a"] == [1]
    assert "b" not in recorder.result
    assert recorder.result["kept"][0]["parts"] == ["a"]
    with pytest.raises(SoonerError, match="another file"):
        Recorder("x", {}, model="other").go_on(before, ["a"])


def test_a_recorder_judges_and_writes_after_each_part(tmp_path) -> None:
    written = []
    recorder = Recorder(
        "x",
        {"file": tmp_path, "sizes": (1, 2)},
        lambda result: [goal("speed", 2.0, result["speed"])],
        lambda result: written.append(dict(result)),
        model="m",
    )
    recorder.add(speed=1.0)
    result = recorder.add(speed=3.0)
    assert [snapshot["goals"][0]["met"] for snapshot in written] == [False, True]
    assert result["settings"] == {"file": str(tmp_path), "sizes": [1, 2]}
    assert (result["bench"], result["model"]) == ("x", "m")


def test_goals_have_the_same_form() -> None:
    lower = Goal("a", 1.0, lambda result: result["figures"]["a"])
    upper = Goal("b", 1.0, lambda result: result["figures"]["b"], clamp=True)
    result = {"figures": {"a": 2.0}}
    assert lower.judge(result)["met"] is True
    assert (upper.judge(result)["met"], upper.judge(result)["reason"]) == (None, "b")
    assert upper.judge({"figures": {"b": 2.0}})["met"] is False
    assert goal("shown", None, 5.0)["met"] is None
    (row,) = worst("all", 1.0, [("p", 1.5), ("q", 0.5)])
    assert (row["where"], row["reached"], row["met"]) == ("q", 0.5, False)
    assert row["missed"] == [["q", 0.5]]
    assert worst("none", 1.0, []) == []
