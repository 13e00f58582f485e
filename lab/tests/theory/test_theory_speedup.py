"""Theorems 1 to 6 and lemma 1 against enumeration and Monte Carlo; where the paper errs."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.errors import SoonerError
from sooner_lab.theory import renewal, speedup, tables

RATES = (0.05, 0.41, 0.8, 0.872, 0.99)


def draw_window(draw: random.Random, rate: float, gamma: int) -> int:
    """Accepted drafts of one window."""
    return next((k for k in range(gamma) if draw.random() >= rate), gamma)


@pytest.mark.parametrize("rate", [0.0, *RATES, 1.0])
@pytest.mark.parametrize("gamma", [1, 2, 5, 9])
def test_lemma_1_is_the_enumerated_mean(rate: float, gamma: int) -> None:
    mean = 0.0
    for passes in itertools.product((True, False), repeat=gamma):
        chance = math.prod(rate if one else 1 - rate for one in passes)
        mean += chance * (passes.index(False) if False in passes else gamma)
    assert speedup.expected_accepted(rate, gamma) == pytest.approx(mean)


@pytest.mark.parametrize("rate", RATES)
def test_theorem_6_is_its_own_two_rounds(rate: float) -> None:
    """The proof's process by Monte Carlo: 1 + τ^γ, and not the printed 1 + τγ."""
    draw, gamma, rounds = random.Random(6), 5, 60_000
    total = 0
    for _ in range(rounds):
        first = draw_window(draw, rate, gamma)
        total += first + (draw_window(draw, rate, gamma) if first == gamma else 0)
    time = 2 * gamma * rounds / total
    assert speedup.parallel_rollback_time(gamma, gamma, rate) == pytest.approx(time, rel=0.03)
    printed = 2 * gamma / ((1 + rate * gamma) * speedup.expected_accepted(rate, gamma))
    assert printed < 0.9 * time


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("c", [1, 4, 9])
def test_theorem_6_in_closed_form(rate: float, c: int) -> None:
    time = speedup.parallel_rollback_time(c, c, rate)
    assert speedup.speedup(c, time) == pytest.approx(speedup.parallel_rollback_speedup(c, rate))


@pytest.mark.parametrize("gamma", [1, 3, 9])
def test_everything_accepted_is_the_ideal(gamma: int) -> None:
    for c in (2.5, 9.0):
        ideal = speedup.parallel_ideal_time(c, gamma)
        assert speedup.parallel_time(c, gamma, 1) == ideal
        assert speedup.parallel_rollback_time(c, gamma, 1) == pytest.approx(ideal)
        assert renewal.parallel_time(c, gamma, 1) == ideal
        assert speedup.vanilla_time(c, gamma, 1) == speedup.vanilla_ideal_time(c, gamma)
        assert renewal.vanilla_time(c, gamma, 1) == speedup.vanilla_ideal_time(c, gamma)


def test_ideal_parallel_is_twice_vanilla_for_large_c() -> None:
    c = 1000
    gain = speedup.vanilla_ideal_time(c, c) / speedup.parallel_ideal_time(c, c)
    assert gain == pytest.approx(2 * c / (c + 1))


def test_theorem_1_is_theorem_5_at_its_window() -> None:
    time = speedup.parallel_time(9.0, 9, 0.4)
    assert speedup.pruned_parallel_speedup(0.4, 9.0) == pytest.approx(speedup.speedup(9.0, time))


def test_nothing_accepted() -> None:
    """Vanilla pays for drafts, the pipeline still says a token a round, eq. 13 nothing."""
    assert renewal.vanilla_time(9, 5, 0) == speedup.vanilla_time(9, 5, 0) == 14
    assert renewal.parallel_time(9, 9, 0) == renewal.parallel_time(9, 9, 0, bonus=False) == 9
    assert speedup.speedup(9, speedup.parallel_rollback_time(9, 9, 1e-6)) < 1e-5


@given(st.floats(0.01, 0.99), st.integers(2, 12))
def test_a_rate_in_place_of_a_share_is_optimistic(rate: float, gamma: int) -> None:
    """Theorem 4 with lemma 1's τ: rate · gamma is above E[X]."""
    assert rate * gamma > speedup.expected_accepted(rate, gamma)
    assert speedup.vanilla_time(9, gamma, rate) < renewal.vanilla_time(9, gamma, rate)
    share = speedup.expected_accepted(rate, gamma) / gamma
    assert speedup.vanilla_time(9, gamma, share) == pytest.approx(
        renewal.vanilla_time(9, gamma, rate)
    )


@given(st.floats(0.01, 0.97), st.integers(1, 12), st.floats(1, 12))
def test_more_acceptance_is_never_slower(rate: float, gamma: int, c: float) -> None:
    for time in (
        speedup.vanilla_time,
        speedup.parallel_time,
        speedup.parallel_rollback_time,
        renewal.vanilla_time,
        renewal.parallel_time,
    ):
        assert time(c, gamma, rate + 0.02) <= time(c, gamma, rate) * (1 + 1e-12)


@given(st.floats(0.01, 0.88), st.integers(2, 12))
def test_theorem_6_is_below_the_pipeline_at_most_rates(rate: float, c: int) -> None:
    """It forgets the target's own tokens."""
    assert speedup.parallel_rollback_time(c, c, rate) > renewal.parallel_time(c, c, rate, False)


def test_theorem_6_beside_the_pipeline() -> None:
    """The figures in its docstring."""
    stated = {0.5: (0.50, 1.33), 0.8: (1.96, 2.56), 0.872: (3.12, 3.42), 0.95: (5.73, 5.47)}
    for rate, (theorem, pipeline) in stated.items():
        assert speedup.parallel_rollback_speedup(9, rate) == pytest.approx(theorem, abs=0.006)
        time = renewal.parallel_time(9, 9, rate, bonus=False)
        assert 9 / time == pytest.approx(pipeline, abs=0.006)


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("rate", [0.3, 0.872])
@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_cycles_by_monte_carlo(bonus: bool, rate: float, gamma: int) -> None:
    draw = random.Random(1)
    rounds = tokens = 0
    for _ in range(40_000):
        accepted = 0
        while draw.random() < rate:
            accepted += 1
        tokens += accepted + 1
        checked, rounds = 1, rounds + 1
        while checked <= accepted:  # the first round behind a pre-verify has one token less
            extra = gamma if bonus or checked > 1 else max(gamma - 1, 1)
            checked, rounds = checked + extra, rounds + 1
    expected = renewal.parallel_time(gamma, gamma, rate, bonus) / gamma
    assert rounds / tokens == pytest.approx(expected, rel=0.02)


def test_inverses() -> None:
    assert renewal.rate_of_run(6.82) == pytest.approx(0.872, abs=1e-3)
    for gamma, rate in ((5, 0.85), (9, 0.3), (1, 0.5)):
        tokens = speedup.expected_accepted(rate, gamma) + 1
        assert renewal.rate_of_round(tokens, gamma) == pytest.approx(rate)
    assert renewal.rate_of_round(6, 5) == pytest.approx(1)
    assert renewal.rate_of_round(1, 5) == pytest.approx(0)


@given(st.floats(1, 12), st.floats(0.05, 0.99))
def test_the_best_window_lies_beside_the_ratio(c: float, rate: float) -> None:
    best = renewal.best_draft_length(c, rate)
    assert math.floor(c) <= best <= math.ceil(c)
    price = renewal.parallel_time(c, best, rate)
    assert price <= min(renewal.parallel_time(c, g, rate) for g in (math.floor(c), math.ceil(c)))


def test_pruning_speeds_drafts_by_1_68_not_1_8() -> None:
    draft = tables.PAIRS["llava-ov-7b-72b"].draft_ms
    assert draft[0.0] / draft[0.9] == pytest.approx(1.68, abs=0.005)


def test_a_rate_of_table_7s_tau_has_no_such_runs() -> None:
    for run_length, tau, _ in tables.PRUNING.values():
        assert renewal.rate_of_run(run_length) > 2 * tau


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: speedup.vanilla_ideal_time(0, 5), "speed ratio c is 0"),
        (lambda: speedup.parallel_ideal_time(5, 0), "window gamma is 0"),
        (lambda: speedup.expected_accepted(1.1, 5), "acceptance rate is 1.1"),
        (lambda: speedup.vanilla_time(5, 5, -0.1), "accepted share is -0.1"),
        (lambda: speedup.parallel_time(5, 5, 0), "share is 0"),
        (lambda: speedup.parallel_rollback_time(5, 5, 0), "rate is 0"),
        (lambda: speedup.speedup(5, 0), "time per token is 0"),
        (lambda: renewal.rate_of_run(-1), "run length is -1"),
        (lambda: renewal.rate_of_round(7, 5), "do not fit a window of 5"),
    ],
)
def test_nonsense_is_refused(make, told: str) -> None:
    with pytest.raises(SoonerError, match=told):
        make()
