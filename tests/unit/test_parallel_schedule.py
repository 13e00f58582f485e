"""The schedules of parallel decoding: the measured one against every fixed policy played out by
chance, and the paper's."""

from __future__ import annotations

import itertools
import random

import pytest

from sooner.methods.controller import RoundCost
from sooner.methods.draft_length import Acceptance, ChainAcceptance
from sooner.methods.parallel.schedule import (
    LOOK_EVERY,
    MEASURED,
    AutoSchedule,
    PaperSchedule,
    best_policy,
)

LARGEST = 4


def forwards(slope: float) -> list[float]:
    """Seconds of the target's forwards over `0 .. LARGEST` draft tokens."""
    return [1.0 + slope * size for size in range(LARGEST + 1)]


def play(
    policy: list[int], acceptance: float, draft: float, slope: float, rounds: int, seed: int = 0
) -> float:
    """Tokens a second of a policy, rounds drawn one by one."""
    chance, target = random.Random(seed), forwards(slope)
    have, tokens, seconds = 0, 0, 0.0
    for _ in range(rounds):
        size = policy[have]
        seconds += max(size - have, 0) * draft + target[size]
        accepted = 0
        while accepted < size and chance.random() < acceptance:
            accepted += 1
        tokens += accepted + 1
        whole = accepted == size and chance.random() < acceptance
        drafted = max(have - size, 0) + int(target[size] / draft)
        have = min(max(drafted - 1, 0), LARGEST) if whole else 0
    return tokens / seconds


@pytest.mark.parametrize(
    ("acceptance", "draft", "slope"),
    [(0.9, 0.1, 0.05), (0.9, 0.5, 0.05), (0.5, 0.3, 0.1), (0.2, 0.4, 0.3), (0.95, 0.25, 0.0)],
)
def test_no_fixed_policy_is_faster(acceptance: float, draft: float, slope: float) -> None:
    machine = acceptance, draft, slope
    ours = play(best_policy(acceptance, draft, forwards(slope))[0], *machine, 40_000)
    policies = itertools.product(range(LARGEST + 1), repeat=3)
    # States in between are reached seldom; they follow the state below.
    best = max(play([a, a, b, b, c], *machine, 4_000, seed=1) for a, b, c in policies)
    assert ours > 0.97 * best


def window(acceptance: float, draft: float, slope: float) -> AutoSchedule:
    """A window that has seen enough rounds of a machine."""
    known = Acceptance()
    known.accepted, known.refused = 1000 * acceptance, 1000 * (1 - acceptance)
    made, target = AutoSchedule(ChainAcceptance(known), LARGEST), forwards(slope)
    made.controller.times.add_draft(1, draft)
    for _ in range(20):
        for size, seconds in enumerate(target):
            made.observe(RoundCost(1, 1 + size, seconds=seconds))
    made.observe(RoundCost(1, 1, seconds=target[0]))
    return made


def test_a_useless_draft_is_not_waited_for_and_its_worker_rests() -> None:
    made = window(0.02, 0.2, 0.2)
    assert made.ahead() == 2 * LARGEST, "nothing was decided yet"
    assert made.sizes([LARGEST], [True]) == [0]
    lengths = [made.ahead() for _ in range(2 * LOOK_EVERY)]
    assert lengths == 2 * [*(LOOK_EVERY - 1) * [0], 1]


def test_a_good_draft_is_verified_and_its_worker_runs_on() -> None:
    made = window(0.9, 0.1, 0.02)
    assert made.sizes([LARGEST], [True]) == [LARGEST]
    assert made.ahead() == 2 * LARGEST


@pytest.mark.parametrize(("draft", "window"), [(0.1, 10), (0.3, 3), (2.0, 1), (0.01, 16)])
def test_the_papers_window_is_the_ratio_of_step_times(draft: float, window: int) -> None:
    """Eq. 6, measured once; rows whose chain broke verify one token (algorithm 1)."""
    made = PaperSchedule(None, 16)
    for _ in range(MEASURED):
        made.times.add_draft(1, draft)
        made.observe(RoundCost(2, 2, seconds=1.0))
    assert made.sizes([0, 20], [True, False]) == [window, 1]
    made.times.add_draft(1, 10 * draft)
    assert made.sizes([20, 0], [True, True]) == [window, window]


def test_a_given_window_is_the_papers() -> None:
    assert PaperSchedule(5, 5).sizes([0, 9, 9], [True, True, False]) == [5, 5, 1]
