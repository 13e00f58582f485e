"""The study's bookkeeping on made-up runs: what is kept, counted and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sooner.errors import SoonerError
from sooner.parity import Parity
from sooner.stats.run import Stats
from sooner_lab.bench.parallel.agreement import agreement, read_name
from sooner_lab.bench.parallel.book import Book, book_path
from sooner_lab.bench.parallel.contenders import FORKED, OURS, UNPRUNED, contenders, sweep
from sooner_lab.bench.parallel.goals import goals
from sooner_lab.bench.parallel.page import sentences, tables
from sooner_lab.bench.parallel.records import to_parity, to_record, to_sample
from sooner_lab.bench.parallel.settings import ParallelSettings
from sooner_lab.bench.parallel.summary import summarise
from sooner_lab.bench.parallel.timeline import fates, phases
from sooner_lab.bench.parallel.verdicts import rate, run_length
from sooner_lab.bench.parallel.watch import TraceEvent
from sooner_lab.bench.protocol import TimedRun


def stats(step: float, tokens: int, method: str, runs: list[int], drafts: float = 0.0) -> Stats:
    """A run of `tokens` one-token forwards, or of drafted ones that all passed but for the last."""
    made = Stats(method=method, tokens=tokens + 1, decode_tokens=tokens, nfe=tokens, runs=runs)
    made.verify_seconds[1] = [step] * tokens
    made.seconds["verify"] = step * tokens
    made.seconds["vision"], made.seconds["prefill"] = 0.1, 0.4
    if drafts:
        made.verify_seconds[5] = [step] * tokens
        made.acceptance_histogram.update({3: tokens // 4})
        made.num_draft_tokens = made.num_draft_levels = tokens
        made.draft_forwards, made.draft_forward_seconds = tokens, drafts * tokens
        made.draft_seconds, made.draft_is_hidden = [drafts], True
    return made


def record(
    arm: str, clip: int = 0, repeat: int = 0, made: Stats | None = None, **extra: Any
) -> Any:
    made = made or stats(0.01, 40, arm, [40])
    sample = TimedRun([[1, 2, 3]], made.decode_seconds, 1.0, made.decode_tokens, made)
    about = {"arm": arm, "clip": clip, "repeat": repeat, "first_token_seconds": 0.5}
    return to_record(sample, Parity("identical"), **{**about, **extra})


def test_a_run_survives_being_written_down() -> None:
    made = stats(0.01, 40, "parallel", [8, 3], drafts=0.001)
    again = to_sample(json.loads(json.dumps(record("parallel", made=made))))
    assert again.stats is not None
    assert again.stats.as_dict() == made.as_dict()
    assert again.stats.verify_seconds == made.verify_seconds
    assert again.stats.draft_is_hidden


def test_a_parity_survives_being_written_down() -> None:
    parity = Parity("tie", 3, 5, 6, 0.0, 0.0, 1e-4)
    sample = TimedRun([[1]], 1.0, 1.0, 1)
    assert to_parity(json.loads(json.dumps(to_record(sample, parity, arm="x")))) == parity


def test_a_book_goes_on_where_it_was(tmp_path: Path) -> None:
    path = book_path(tmp_path / "x.json")
    book = Book(path, {"seed": 1})
    book.add(record("plain"))
    book.add(record("parallel", clip=1))
    again = Book(path, {"seed": 1})
    assert again.resumed == 2
    assert again.has("parallel", 1, 0)
    assert not again.has("parallel", 0, 0)
    assert [one["clip"] for one in again.of("parallel")] == [1]
    again.close()
    assert not path.exists()


def test_a_line_that_was_being_written_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    Book(path, {}).add(record("plain"))
    with open(path, "a") as file:
        file.write('{"arm": "paral')
    book = Book(path, {})
    assert book.resumed == 1
    book.add(record("parallel"))
    assert Book(path, {}).resumed == 2


def test_runs_of_another_study_are_refused(tmp_path: Path) -> None:
    Book(tmp_path / "runs", {"seed": 1}).add(record("plain"))
    with pytest.raises(SoonerError, match="another study"):
        Book(tmp_path / "runs", {"seed": 2})


def test_no_arm_runs_twice() -> None:
    names = [one.name for one in contenders(ParallelSettings())]
    assert len(names) == len(set(names))
    assert names[0] == "plain"
    assert {
        OURS,
        UNPRUNED,
        "fastv",
        "specvlm",
        "uv-prune-by-frame@0.95",
        "uv-prune@0.9",
        "random@0.5",
    } <= set(names)


def test_points_of_the_sweep_share_the_arms_of_the_other_tables() -> None:
    points = {(one.criterion, one.alpha): one.name for one in sweep(ParallelSettings())}
    assert points["uv-prune-by-frame", 0.9] == OURS
    assert points["uv-prune-by-frame", 0.0] == UNPRUNED
    assert points["uv-prune", 0.9] == "uv-prune@0.9"
    assert points["attention", 0.9] == "attention@0.9"
    assert sum(alpha == 0 for _, alpha in points) == 1
    assert len(points) == 1 + 5 * 7


def test_only_asked_parts_run() -> None:
    lossy = contenders(ParallelSettings(parts=("lossy",)))
    assert [one.name for one in lossy] == [
        "plain", "fastv", "sparse-vlm", "pyramid-drop", "dycoke", "parallel",
    ]  # fmt: skip


def study(pruned: list[int], whole: list[int]) -> dict[str, Any]:
    book = Book(None, {})
    book.add(record("plain", made=stats(0.01, 40, "plain", [40])))
    book.add(record("speculative-auto", made=stats(0.005, 40, "speculative", [40])))
    arms = ((OURS, pruned, 0.51), (UNPRUNED, whole, 0.5), (FORKED, pruned, 0.6))
    for arm, runs, seconds in arms:
        made = stats(0.0025, 40, "parallel", [3 * length for length in runs], 0.001)
        made.rank_seconds = 0.002 if arm == OURS else 0.0
        text = [right for length in runs for right in (*[True] * (length - 1), False)]
        book.add(record(arm, made=made, first_token_seconds=seconds, verdicts=text))
    return summarise(book, ParallelSettings(alphas=(), criteria=("uv-prune-by-frame",)))


def test_speed_and_lengths_come_from_the_runs() -> None:
    made = study(pruned=[5, 7], whole=[10, 10])
    arms = {arm["method"]: arm for arm in made["arms"]}
    assert arms[OURS]["decode_speedup"] == pytest.approx(4.0)
    assert arms[OURS]["accepted_run_length"] == 18.0
    assert arms[OURS]["draft_run_length"] == 6.0
    assert arms[OURS]["draft_agreement"] == pytest.approx(10 / 12)
    assert arms["plain"]["accepted_run_length"] is None
    assert arms[OURS]["first_token_ratio"] == pytest.approx(1.02)
    points = {one["alpha"]: one for one in made["sweep"]}
    assert points[0.9]["speed_ratio"] == pytest.approx(10.0)
    assert points[0.0]["draft_run_length"] == 10.0


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ([True, True, False, True, False], [3, 2]),
        ([False, False, True], [1, 1, 1]),  # the last one's end is the text's
        ([True, True], [2]),
        ([False], [1]),
    ],
)
def test_runs_are_those_that_verifying_token_by_token_would_count(
    text: list[bool], runs: list[int]
) -> None:
    """Where the target says all that the draft would not, each token ends a run or does not."""
    literal = Stats()
    for right in text:  # windows of one token, of which the bonus token is left out
        literal.record_step(0, 1, int(right), 1)
    literal.close_runs()
    assert literal.runs == runs
    assert run_length([text]) == sum(runs) / len(runs)


def test_nothing_judged_has_no_length() -> None:
    assert run_length([]) is None
    assert run_length([[]]) is None
    assert rate([[]]) is None


def test_read_texts_count_beside_timed_ones_clip_by_clip() -> None:
    """M is of all of them; the share is of the clips that both drafts have read."""
    book = Book(None, {})
    right, wrong = [True] * 9 + [False], [True] * 4 + [False]
    book.add(record(UNPRUNED, verdicts=right * 2))
    book.add(record(UNPRUNED, repeat=1, verdicts=wrong))  # the same text again says nothing new
    book.add(record(OURS, verdicts=wrong * 4))
    for clip, text in ((1, right * 2), (2, wrong * 4)):
        book.add({"arm": read_name(UNPRUNED), "clip": clip, "repeat": 0, "verdicts": text})
    book.add({"arm": read_name(OURS), "clip": 1, "repeat": 0, "verdicts": right * 2})
    whole, ours = agreement(book, UNPRUNED, 1), agreement(book, OURS, 1)
    assert whole["draft_run_length"] == pytest.approx(60 / 8)
    assert whole["run_length_share"] == {"value": 1.0, "interval": [1.0, 1.0]}
    assert whole["read_clips"] == 3
    assert ours["draft_run_length"] == pytest.approx(40 / 6)
    assert ours["read_clips"] == 2
    assert ours["run_length_share"]["value"] == pytest.approx(40 / 6 / 10)
    assert ours["run_length_share"]["interval"] == [0.5, 1.0]  # of one clip and of the other
    assert agreement(book, "plain", 1) == {}


def test_a_wrong_text_has_no_speed() -> None:
    book = Book(None, {})
    book.add(record("plain"))
    wrong = record(OURS, made=stats(0.001, 40, "parallel", [5], 0.001))
    wrong["parity"]["verdict"] = "bug"
    book.add(wrong)
    made = summarise(book, ParallelSettings(parts=("methods",)))
    ours = next(arm for arm in made["arms"] if arm["method"] == OURS)
    assert "decode_speedup" not in ours
    assert "simulated_speedup" not in ours


def test_the_rival_that_chooses_its_window_stands_beside_the_other() -> None:
    made = study(pruned=[9, 10], whole=[10, 10])
    arms = {arm["method"]: arm for arm in made["arms"]}
    assert arms[OURS]["over_speculative_auto"] == pytest.approx(2.0)
    assert "over_speculative" not in arms[OURS]  # which was not measured
    assert (arms[OURS]["first_token_ratio"], arms[FORKED]["first_token_ratio"]) == (
        pytest.approx(1.02), pytest.approx(1.2),
    )  # fmt: skip
    assert sentences(made) == []
    arms[OURS]["over_speculative"] = 3.0
    (_, told) = sentences(made)
    for part in ("4.00 times as fast as plain", "3.00 times as fast", "2.00 times as fast",
                 "1.02 times plain", "1.20 times with one that is forked"):  # fmt: skip
        assert part in told


def test_goals_are_of_the_arm_that_was_named() -> None:
    """Not of the better one of two."""
    made = study(pruned=[9, 10], whole=[10, 10])
    next(arm for arm in made["arms"] if arm["method"] == UNPRUNED)["decode_speedup"] = 9.0
    told = {one["goal"]: one for one in goals(made, 0.9)}
    assert told["parallel over plain, ×"]["reached"] == pytest.approx(4.0)


def test_the_share_of_ranking_is_told_once() -> None:
    """Of the timed runs: the watched ones have hooks on every layer."""
    made = study(pruned=[9, 10], whole=[10, 10])
    run = dict.fromkeys(
        ("launch", "vision", "prefill", "ranking", "verify", "waiting", "rest", "first_token",
         "draft_vision", "draft_prefill", "draft_hidden", "draft_exposed", "draft_seconds",
         "draft_useful"), 0.1,
    )  # fmt: skip
    made |= {"goals": goals(made, 0.9), "timeline": [{"phases": run}], "memory": {}}
    rows = [row for table in tables(made) for row in table.rows]
    assert sum("ranking" in row[0] for row in rows) == 1


def test_goals_say_what_was_reached() -> None:
    made = study(pruned=[9, 10], whole=[10, 10])
    told = {one["goal"]: one for one in goals(made, 0.9)}
    speed = next(one for name, one in told.items() if "over plain" in name)
    assert (speed["reached"], speed["met"]) == (pytest.approx(4.0), True)
    kept = next(one for name, one in told.items() if "uv-prune" in name)
    assert (kept["reached"], kept["met"]) == (pytest.approx(95.0), True)
    assert kept["interval"] == pytest.approx([95.0, 95.0])  # of one clip
    opening = next(one for name, one in told.items() if "first token, standing" in name)
    assert (opening["reached"], opening["met"]) == (pytest.approx(2.0), True)
    late = next(one for name, one in told.items() if "first token, draft forked" in name)
    assert (late["reached"], late["met"]) == (pytest.approx(20.0), False)
    auto = next(one for name, one in told.items() if "over speculative-auto" in name)
    assert (auto["reached"], auto["met"]) == (pytest.approx(2.0), True)
    without = goals({**made, "arms": made["arms"][:1]}, 0.9)  # as when only the sweep ran
    assert opening in without
    ranking = next(one for name, one in told.items() if "ranking" in name)
    assert (ranking["reached"], ranking["met"]) == (pytest.approx(0.5), True)


def test_a_draft_stands_if_it_was_said_and_not_made_again() -> None:
    said = [7, 8, 9]
    events = [
        TraceEvent("vision", 0, 1),
        TraceEvent("prefill", 1, 2, 5, place=0, token=7),
        TraceEvent("step", 2, 3, 1, place=1, token=4),  # wrong
        TraceEvent("step", 3, 4, 1, place=2, token=9),  # right by chance, on a dead line
        TraceEvent("step", 4, 5, 2, place=2, token=9),
        TraceEvent("step", 5, 6, 1, place=3, token=1),  # behind the end
    ]
    assert fates(events, said) == [None, True, False, False, True, False]


def test_phases_split_the_draft_by_the_end_of_the_targets_prefill() -> None:
    target = [
        TraceEvent("vision", 1.0, 2.0),
        TraceEvent("prefill", 2.0, 6.0, 9, 0, 7),
        TraceEvent("rank", 3.0, 3.5),
        TraceEvent("wait", 6.5, 7.0),
        TraceEvent("step", 7.0, 8.0, 3, 2, 9),
    ]
    draft = [
        TraceEvent("vision", 1.5, 2.5),
        TraceEvent("prefill", 3.5, 6.5, 4, 0, 7),
        TraceEvent("step", 6.5, 7.0, 1, 1, 8),
    ]
    found = phases(target, draft, [7, 8, 9], begin=1.0)
    assert found["draft_hidden"] == pytest.approx(1.0 + 2.5)
    assert found["draft_exposed"] == pytest.approx(0.5)
    assert found["rest"] == pytest.approx(7.0 - (1 + 4 + 1 + 0.5))
    assert (found["ranking"], found["waiting"], found["first_token"]) == (0.5, 0.5, 5.0)
    assert found["draft_useful"] == 1.0
    assert phases(target, draft, [7, 8, 9], begin=0.75)["launch"] == 0.25
