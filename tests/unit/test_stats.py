"""Every mean is derived from the histogram, and the names are those of the design."""

from __future__ import annotations

import json

import pytest

from sooner.engine.stats.run import Stats


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
    assert stats.rejection_histogram == {1: 1, 3: 1}
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
