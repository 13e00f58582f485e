"""Lemma 1 and the renewal forms against enumeration and Monte Carlo."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.errors import SoonerError
from sooner_lab.theory import renewal, speedup

RATES = (0.05, 0.41, 0.8, 0.872, 0.99)


@pytest.mark.parametrize("rate", [0.0, *RATES, 1.0])
@pytest.mark.parametrize("gamma", [1, 2, 5, 9])
def test_lemma_1_is_the_enumerated_mean(rate: float, gamma: int) -> None:
    mean = 0.0
    for passes in itertools.product((True, False), repeat=gamma):
        chance = math.prod(rate if is_accepted else 1 - rate for is_accepted in passes)
        mean += chance * (passes.index(False) if False in passes else gamma)
    assert speedup.expected_accepted(rate, gamma) == pytest.approx(mean)


@pytest.mark.parametrize("gamma", [1, 3, 9])
def test_everything_or_nothing_accepted(gamma: int) -> None:
    """At rate 1 theorems 2 and 3; at rate 0 a token a round."""
    for c in (2.5, 9.0):
        assert renewal.parallel_time(c, gamma, 1) == max(gamma, c) / gamma
        assert renewal.vanilla_time(c, gamma, 1) == (gamma + c) / (gamma + 1)
    assert renewal.vanilla_time(9, gamma, 0) == gamma + 9
    assert renewal.parallel_time(9, gamma, 0) == renewal.parallel_time(9, gamma, 0, False) == 9


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
def test_the_best_window_lies_next_to_the_ratio(c: float, rate: float) -> None:
    best = renewal.best_draft_length(c, rate)
    assert math.floor(c) <= best <= math.ceil(c)
    price = renewal.parallel_time(c, best, rate)
    assert price <= min(renewal.parallel_time(c, g, rate) for g in (math.floor(c), math.ceil(c)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: renewal.vanilla_time(0, 5, 0.5), "speed ratio c is 0"),
        (lambda: renewal.parallel_time(5, 0, 0.5), "window gamma is 0"),
        (lambda: speedup.expected_accepted(1.1, 5), "acceptance rate is 1.1"),
        (lambda: renewal.rate_of_run(-1), "run length is -1"),
        (lambda: renewal.rate_of_round(7, 5), "do not fit a window of 5"),
    ],
)
def test_nonsense_is_refused(make, message: str) -> None:
    with pytest.raises(SoonerError, match=message):
        make()
