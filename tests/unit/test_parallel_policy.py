"""The window policy of parallel decoding, against every fixed policy played out by chance."""

from __future__ import annotations

import itertools
import random

import pytest

from sooner.methods.parallel.policy import LOOK_EVERY, Plan, best_policy
from sooner.methods.sizing.chain import CostModel

LARGEST = 4


class Known(CostModel):
    """A cost model that knows instead of measuring."""

    def __init__(self, acceptance: float, draft: float, slope: float) -> None:
        super().__init__()
        self.known = acceptance
        self.observe_draft(draft)
        for block in range(1, LARGEST + 2):
            self.costs.add(1, block, 1.0 + slope * (block - 1))

    @property
    def acceptance(self) -> float:
        return self.known


def play(policy: list[int], model: Known, rounds: int, seed: int = 0) -> float:
    """Tokens a second of a policy, rounds drawn one by one."""
    chance = random.Random(seed)
    draft = model.draft_seconds() or 0.0
    have, tokens, seconds = 0, 0, 0.0
    for _ in range(rounds):
        size = policy[have]
        forward = model.costs.seconds(1, size + 1)
        seconds += max(size - have, 0) * draft + forward
        accepted = 0
        while accepted < size and chance.random() < model.known:
            accepted += 1
        tokens += accepted + 1
        whole = accepted == size and chance.random() < model.known
        drafted = max(have - size, 0) + int(forward / draft)
        have = min(max(drafted - 1, 0), LARGEST) if whole else 0
    return tokens / seconds


@pytest.mark.parametrize(
    ("acceptance", "draft", "slope"),
    [(0.9, 0.1, 0.05), (0.9, 0.5, 0.05), (0.5, 0.3, 0.1), (0.2, 0.4, 0.3), (0.95, 0.25, 0.0)],
)
def test_no_fixed_policy_is_faster(acceptance: float, draft: float, slope: float) -> None:
    model = Known(acceptance, draft, slope)
    ours = play(best_policy(model, LARGEST)[0], model, 40_000)
    policies = itertools.product(range(LARGEST + 1), repeat=3)
    # States in between are reached seldom; they follow the state below.
    best = max(play([a, a, b, b, c], model, 4_000, seed=1) for a, b, c in policies)
    assert ours > 0.97 * best


def test_a_useless_draft_is_not_waited_for() -> None:
    assert best_policy(Known(0.02, 0.5, 0.2), LARGEST)[0] == [0] * (LARGEST + 1)


def test_a_worker_rests_while_its_draft_gains_nothing() -> None:
    plan = Plan(Known(0.02, 0.2, 0.0), LARGEST)
    assert plan.ahead() is None  # nothing is known yet
    assert plan.choose(1, LARGEST) == 0
    lengths = [plan.ahead() for _ in range(2 * LOOK_EVERY)]
    assert lengths == 2 * [*(LOOK_EVERY - 1) * [0], 1]
