"""The protocol: interleaving, medians, the parity gate, and what theory makes of step times."""

from __future__ import annotations

import pytest

from sooner.io import write_json
from sooner.parity import Parity
from sooner.stats.run import Stats
from sooner_lab.bench import protocol, report
from sooner_lab.bench.protocol import Arm, ArmSamples, TimedRun, measure, row, theory_speedup

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


def test_arms_take_turns_after_one_warm_up_each() -> None:
    order: list[tuple[str, int]] = []

    def arm(name: str) -> Arm:
        def run(index: int) -> TimedRun:
            order.append((name, index))
            return TimedRun(TOKENS, 1.0, 1.0, 4)

        return Arm(name, run)

    found = measure([arm("a"), arm("b")], inputs=2, repeats=2)
    warm, timed = order[:2], order[2:]
    assert warm == [("a", 0), ("b", 0)]
    assert timed == [(name, index) for index in (0, 1) for _ in range(2) for name in "ab"]
    assert [[len(runs) for runs in one.samples] for one in found] == [[2, 2], [2, 2]]


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
    assert "–" in report.cells(figures)


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


def test_the_page_holds_every_arm_and_its_source() -> None:
    plain = measured("plain", [2.0])
    result = {
        "bench": "caption",
        "model": "miniature:video",
        "arms": [row(plain, plain)],
        "batch": {
            "rows": 8,
            "arms": [
                {
                    "method": "parallel",
                    "tokens_per_second": 30.0,
                    "over_plain": 3.0,
                    "over_one_row": 2.5,
                    "one_row_over_plain": 4.0,
                    "parity": ["identical", "tie"],
                }
            ],
        },
        "provenance": {
            "argv": ["sooner", "bench"],
            "date": "2026-01-01",
            "git": "abc",
            "device": "a CPU",
            "threads": 1,
            "dtype": "float32",
            "versions": {"torch": "2", "transformers": "5"},
        },
    }
    page = report.markdown(result, "result.json")
    assert "| plain | exact | 5 | 2.0 | 1.00× |" in page
    assert "(result.json)" in page
    assert "Batch of 8" in page
    assert "3.00×" in page
    assert "identical, tie" in page


def test_results_are_written_whole_or_not_at_all(tmp_path) -> None:
    target = tmp_path / "deep" / "result.json"
    write_json({"a": 1}, target)
    with pytest.raises(TypeError):
        write_json({"a": object()}, target)
    assert target.read_text().strip() == '{\n "a": 1\n}'
    assert [path.name for path in target.parent.iterdir()] == ["result.json"]


def test_overhead_is_what_is_outside_forwards() -> None:
    one = stats({1: [0.01] * 9}, tokens=9)
    one.seconds["other"] = 0.01
    assert protocol._overhead([one]) == pytest.approx(0.1)
