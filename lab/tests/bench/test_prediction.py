"""The simulator's word on measured runs."""

from __future__ import annotations

import pytest

from sooner.engine.stats.run import Stats
from sooner_lab.bench.prediction import predicted_speedup, step_curve


def _stats(blocks: dict[int, float], runs: list[int], draft: float | None = None) -> Stats:
    stats = Stats(runs=runs)
    for block, seconds in blocks.items():
        stats.verify_seconds[block] = [seconds] * 9
    if draft is not None:
        stats.draft_seconds = [draft]
    return stats


def test_a_vanilla_round_that_always_accepts_gains_the_expected_speedup() -> None:
    plain = _stats({1: 0.010}, [])
    arm = _stats({5: 0.012}, [20_000], draft=0.001)
    # Five tokens a round for four drafts and one forward over five.
    assert predicted_speedup([arm], [plain], num_draft_tokens=4) == pytest.approx(
        5 * 0.010 / (4 * 0.001 + 0.012), rel=0.01
    )


def test_a_parallel_draft_gains_more_than_a_sequential_draft() -> None:
    plain = _stats({1: 0.010}, [])
    arm = _stats({6: 0.012}, [8, 3, 12, 5, 7], draft=0.001)
    parallel = predicted_speedup([arm], [plain])
    assert parallel is not None
    assert parallel > (predicted_speedup([arm], [plain], num_draft_tokens=5) or 0)


def test_without_drafts_there_is_no_prediction() -> None:
    plain = _stats({1: 0.010}, [])
    assert predicted_speedup([plain], [plain]) is None


def test_rare_block_sizes_do_not_bend_the_curve() -> None:
    stats = _stats({1: 0.010, 8: 0.012}, [])
    stats.verify_seconds[3] = [0.5]
    assert step_curve([stats])(3) < 0.012
