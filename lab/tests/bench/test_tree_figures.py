"""What the benches make of the counts of trees, which tests/unit/test_tree_counts.py is about."""

from __future__ import annotations

from sooner.stats.run import Stats
from sooner_lab.bench.parallel.records import plain_stats, to_stats
from sooner_lab.bench.protocol import Arm, ArmSamples, TimedRun, engine_figures


def _of_trees() -> Stats:
    stats = Stats(tokens=9, nfe=3)
    stats.record_step(0, drafted=9, levels=3, accepted=3, committed=4)
    stats.record_step(0, drafted=9, levels=3, accepted=1, committed=2)
    stats.close_runs()
    return stats


def test_the_benches_row_has_the_engines_rate() -> None:
    stats = _of_trees()
    sample = TimedRun([[0] * 9], 1.0, 1.0, 8, stats)
    one = ArmSamples(Arm("tree", lambda index: sample, "exact"), [[sample]], [])
    figures = engine_figures(one, one)
    assert figures["acceptance_rate"] == stats.acceptance_rate == 4 / 6
    assert figures["accepted_run_length"] == stats.accepted_run_length == 6


def test_a_run_read_back_from_disk_has_the_same_figures() -> None:
    stats = _of_trees()
    again = to_stats(plain_stats(stats))
    assert again.acceptance_rate == stats.acceptance_rate
    assert again.as_dict()["num_draft_levels"] == 6
