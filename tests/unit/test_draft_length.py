"""The adaptive window against a simulated machine: its clock is arithmetic."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from sooner.methods.sizing.chain import (
    AdaptiveDraftLength,
    DraftLength,
)
from sooner.methods.sizing.costs import RoundCost


def tell(
    sizing: DraftLength,
    done: RoundCost,
    rows: Sequence[int],
    drafted: Sequence[int],
    accepted: Sequence[int],
) -> None:
    """What a drafter tells the sizing of a round, on a CPU: its time is known at once."""
    sizing.observe_cost(done, 1 + sum(accepted) / len(accepted))
    sizing.observe(rows, drafted, accepted)


class Machine:
    """Target forwards of `base + slope * tokens` seconds, draft forwards of `draft` seconds.

    Draft tokens are accepted with probability `acceptance` each, rows independently.
    """

    def __init__(
        self, acceptance: float, draft: float, slope: float = 0.0, rows: int = 1, seed: int = 0
    ) -> None:
        self.acceptance, self.draft, self.slope, self.rows = acceptance, draft, slope, rows
        self.random = random.Random(seed)

    def target(self, tokens: int) -> float:
        return 1.0 + self.slope * (tokens - 1)

    def speed(self, draft_length: int) -> float:
        """Tokens a second of a window over those of plain decoding: Leviathan's closed form."""
        tokens = sum(self.acceptance**power for power in range(draft_length + 1))
        return tokens / (draft_length * self.draft + self.target(draft_length + 1))

    def best(self, largest: int) -> int:
        return max(range(largest + 1), key=self.speed)

    def _accepted(self, draft_length: int) -> int:
        count = 0
        while count < draft_length and self.random.random() < self.acceptance:
            count += 1
        return count

    def run(self, draft_length: AdaptiveDraftLength, rounds: int) -> list[int]:
        """Play some rounds; returns the windows that were chosen."""
        chosen = []
        for _ in range(rounds):
            rows = range(self.rows)
            drafted = draft_length.choose(rows)
            size = max(drafted)
            accepted = [self._accepted(many) for many in drafted]
            seconds = self.target(1 + size)
            done = RoundCost(self.rows, 1 + size, size * self.draft, size, seconds=seconds)
            tell(draft_length, done, rows, drafted, accepted)
            chosen.append(size)
        return chosen


def value(machine: Machine, chosen: list[int]) -> float:
    """Mean closed-form speed of the windows, as a share of the best one's."""
    best = machine.speed(machine.best(16))
    return sum(machine.speed(size) for size in chosen) / len(chosen) / best


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize(
    ("acceptance", "draft", "slope"),
    [(0.9, 0.1, 0.02), (0.8, 0.05, 0.02), (0.7, 0.1, 0.1), (0.5, 0.05, 0.05), (0.95, 0.02, 0.0)],
)
def test_it_settles_on_the_best_window(
    acceptance: float, draft: float, slope: float, rows: int
) -> None:
    machine = Machine(acceptance, draft, slope, rows)
    chosen = machine.run(AdaptiveDraftLength(16), 400)
    settled = chosen[100:]
    assert value(machine, settled) > 0.93
    middle = sorted(settled)[len(settled) // 2]
    assert machine.speed(middle) > 0.96 * machine.speed(machine.best(16))


@pytest.mark.parametrize(
    ("acceptance", "draft", "slope"),
    [(0.02, 0.1, 0.05), (0.6, 0.9, 0.05), (0.5, 0.1, 1.0), (0.0, 0.01, 0.01)],
    ids=["useless", "slow", "compute-bound", "never-right"],
)
def test_it_decodes_plainly_when_no_window_pays(
    acceptance: float, draft: float, slope: float
) -> None:
    machine, notes = Machine(acceptance, draft, slope), []
    assert machine.best(16) == 0
    chosen = machine.run(AdaptiveDraftLength(16, note=notes.append), 400)
    assert Counter(chosen)[0] / len(chosen) > 0.85
    assert value(machine, chosen[100:]) > 0.95, "probing must not cost more than it may gain"
    assert any("plain decoding for" in note for note in notes)
