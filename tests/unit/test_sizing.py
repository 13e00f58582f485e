"""Drafting is never slower than plain decoding for long: played out by made-up clocks."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest

from sooner.methods.sizing.chain import AdaptiveDraftLength, DraftLength
from sooner.methods.sizing.costs import Acceptance, RoundCost
from sooner.methods.sizing.pauses import LONGEST_PAUSE
from sooner.methods.sizing.tree import MeasuredSize, Size, TreeSize
from sooner.methods.tree_draft import STATIC_TREE, TreeShape

Chance = Callable[[int, int], float]  # (row, round) -> chance of a draft token


class Pair:
    """A target and a draft whose forwards cost `step * (1 + slope * (rows * block - 1))` seconds.

    Draft tokens that a plain round left out are caught up with for `missed` plain steps each. The
    sizing hears of a round's time `late` rounds later, as on a GPU.
    """

    def __init__(
        self,
        chance: Chance,
        rows: int = 1,
        *,
        slope: float = 0.01,
        draft: float = 0.2,
        missed: float = 0.005,
        step: float = 0.03,
        seed: int = 0,
        late: int = 0,
    ) -> None:
        self.late, self.costs = late, deque[tuple[RoundCost, float]]()
        self.chance, self.rows = chance, list(range(rows))
        self.slope, self.draft, self.missed, self.step = slope, draft, missed, step
        self.random = random.Random(seed)
        self.seconds, self.tokens = 0.0, [0] * rows
        self.rounds = self.backlog = 0
        self.drafted: list[list[int]] = []  # of each round

    def forward(self, block: int) -> float:
        return self.step * (1 + self.slope * (len(self.rows) * block - 1))

    def round(self, sizing: DraftLength) -> None:
        drafted = sizing.choose(self.rows)
        block, spent, caught_up = 1 + max(drafted), 0.0, 0
        if block > 1:
            caught_up = self.backlog if self.backlog > 1 else 0
            spent = (block - 1) * self.draft * self.forward(1)
            spent += caught_up * self.missed * self.forward(1)
            self.backlog = 0
        else:
            self.backlog += 1
        accepted = [self._accepted(row, many) for row, many in zip(self.rows, drafted, strict=True)]
        seconds = self.forward(block)
        done = RoundCost(len(self.rows), block, spent, block - 1, caught_up, seconds)
        self.costs.append((done, 1 + sum(accepted) / len(accepted)))
        if len(self.costs) > self.late:
            sizing.observe_cost(*self.costs.popleft())
        sizing.observe(self.rows, drafted, accepted)
        for row, right in zip(self.rows, accepted, strict=True):
            self.tokens[row] += 1 + right
        self.seconds += spent + self.forward(block)
        self.drafted.append(drafted)
        self.rounds += 1

    def _accepted(self, row: int, many: int) -> int:
        chance, count = self.chance(row, self.rounds), 0
        while count < many and self.random.random() < chance:
            count += 1
        return count

    def run(self, sizing: DraftLength, tokens: int) -> float:
        """Speed until each row has said `tokens` more, as a multiple of plain decoding's."""
        before, counts = self.seconds, list(self.tokens)
        ends = [have + tokens for have in counts]
        while any(self.tokens[row] < ends[row] for row in self.rows):
            self.round(sizing)
        made = sum(self.tokens[row] - counts[row] for row in self.rows) / len(self.rows)
        return made * self.forward(1) / (self.seconds - before)


def always(rate: float) -> Chance:
    return lambda row, number: rate


HOSTILE = [(0.05, 0.005), (0.2, 0.002), (0.5, 0.0), (0.9, 0.01)]  # draft step, catching up


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("rows", [1, 8, 32])
@pytest.mark.parametrize(("draft", "missed"), HOSTILE)
@pytest.mark.parametrize("slope", [0.002, 0.05])
def test_a_hostile_draft_costs_little_from_the_third_second_on(
    rows: int, draft: float, missed: float, slope: float, late: int
) -> None:
    pair = Pair(always(0.0), rows, draft=draft, missed=missed, slope=slope, late=late)
    sizing = AdaptiveDraftLength(16)
    while pair.seconds < 3.0:
        pair.round(sizing)
    assert pair.run(sizing, 600) >= 0.97


def fixed(pair: Callable[[], Pair], tokens: int) -> float:
    """The best speed of any fixed length."""
    return max(pair().run(DraftLength(size), tokens) for size in range(1, 17))


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("rows", [1, 8, 32])
@pytest.mark.parametrize(
    ("rate", "draft", "slope"), [(0.9, 0.05, 0.002), (0.8, 0.1, 0.004), (0.95, 0.02, 0.001)]
)
def test_a_good_draft_is_as_fast_as_with_the_best_fixed_length(
    rows: int, rate: float, draft: float, slope: float, late: int
) -> None:
    def pair() -> Pair:
        return Pair(always(rate), rows, draft=draft, slope=slope, seed=1, late=late)

    best = fixed(pair, 1500)
    assert best > 1.2
    known = Acceptance()
    pair().run(AdaptiveDraftLength(16, experience=known), 300)
    assert pair().run(AdaptiveDraftLength(16, experience=known), 1500) >= 0.95 * best


@pytest.mark.parametrize("rate", [0.6, 0.7, 0.8, 0.9])
def test_short_texts_of_a_known_pair_are_as_fast_as_with_the_best_fixed_length(rate: float) -> None:
    """A run's few rounds scatter; what earlier texts told keeps them from ending the drafting."""

    def seconds(sizing: Callable[[], DraftLength]) -> float:
        pairs = (Pair(always(rate), draft=0.2, slope=0.02, seed=seed) for seed in range(40))
        return sum(1 / pair.run(sizing(), 100) for pair in pairs)

    known = Acceptance()
    ours = seconds(lambda: AdaptiveDraftLength(16, experience=known))
    best = min(seconds(lambda size=size: DraftLength(size)) for size in range(1, 17))  # type: ignore[misc]
    assert best / ours >= 0.95


@pytest.mark.parametrize("late", [0, 1])
def test_a_draft_that_turns_good_is_noticed(late: int) -> None:
    turn = 400
    pair = Pair(lambda row, number: 0.9 if number > turn else 0.0, late=late)
    sizing = AdaptiveDraftLength(16)
    while pair.rounds < turn + LONGEST_PAUSE + 32:
        pair.round(sizing)
    assert pair.run(sizing, 500) > 0.9 * fixed(lambda: Pair(always(0.9)), 500)


@pytest.mark.parametrize("late", [0, 1])
def test_a_draft_that_turns_bad_is_left_soon(late: int) -> None:
    turn = 200
    pair = Pair(lambda row, number: 0.9 if number < turn else 0.0, late=late)
    sizing = AdaptiveDraftLength(16)
    while pair.rounds < turn + 60:
        pair.round(sizing)
    assert sum(map(any, pair.drafted[turn:])) <= 20
    assert sum(map(any, pair.drafted[turn + 25 :])) <= 2


def tree_speed(rate: float, draft: float, sizing: TreeSize | None, tokens: int = 3000) -> float:
    """Speed of a static tree's levels as a multiple of plain decoding's.

    Args:
        rate: chance that one of a level's nodes is right.
        draft: plain steps' time that a level takes.
        sizing: chooses the levels; `None` is the whole tree.
    """
    shape, chance = TreeShape(STATIC_TREE), random.Random(1)
    levels = [Size(shape.sizes[depth], depth) for depth in range(1, shape.depth + 1)]
    sizing = sizing or TreeSize(levels[-1])
    generated, spent = 0, 0.0
    while generated < tokens:
        size = sizing.choose(room=tokens - generated, is_open=True)
        path: list[int] = []
        while len(path) < size.depth and chance.random() < rate:
            path.append(shape.sizes[len(path)])  # the level's first node
        block, drafting = 1 + size.nodes, draft * size.depth
        done = RoundCost(1, block, drafting, size.depth, seconds=1 + 0.02 * size.nodes)
        sizing.observe_cost(done, 1 + len(path) if size.depth else None)
        if size.depth:
            sizing.observe(size, [path])
        generated += 1 + len(path)
        spent += drafting + done.seconds
    return generated / spent


def measured_levels() -> MeasuredSize:
    """As `SDTree` has it."""
    shape = TreeShape(STATIC_TREE)
    levels = [Size(shape.sizes[depth], depth) for depth in range(1, shape.depth + 1)]
    return MeasuredSize(levels[-1], levels)


@pytest.mark.parametrize(("rate", "draft"), [(0.0, 0.1), (0.3, 0.5), (0.5, 0.9)])
def test_a_static_tree_that_does_not_pay_is_left(rate: float, draft: float) -> None:
    assert tree_speed(rate, draft, None) < 0.9
    assert tree_speed(rate, draft, measured_levels()) > 0.95


@pytest.mark.parametrize(("rate", "draft"), [(0.95, 0.05), (0.8, 0.1), (0.6, 0.1)])
def test_a_static_tree_has_as_many_levels_as_pay(rate: float, draft: float) -> None:
    shape = TreeShape(STATIC_TREE)
    fixed = [TreeSize(Size(shape.sizes[depth], depth)) for depth in range(1, shape.depth + 1)]
    best = max(tree_speed(rate, draft, size) for size in fixed)
    assert best > 1.1
    assert tree_speed(rate, draft, measured_levels()) > 0.93 * best
