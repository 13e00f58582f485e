"""The controller of draft lengths on made-up clocks: near the best length, never far below plain.

A machine's forwards cost what its table says, and its draft tokens are right by its chances. The
controller sees a round's time `late` rounds after the round, as on a GPU.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from covering import diagonal, thinned
from sooner.methods.controller import LONGEST_PAUSE, RoundCost
from sooner.methods.draft_length import (
    EXPLORE_EVERY,
    Acceptance,
    AdaptiveDraftLength,
    DraftLength,
    RoundRows,
)
from sooner.methods.sd_tree import STATIC_TREE, TreeShape
from sooner.methods.tree_size import MeasuredSize, Size, TreeSize

LARGEST = 16
Chance = Callable[[int, int], float]
"""`(row, round)` -> that a draft token is accepted."""


class Machine:
    """A target, a draft and a batch of rows.

    Args:
        chance: of draft tokens; a number is the same for all.
        forward: seconds of the target's over `(rows, block)`.
        draft: seconds of a draft forward.
        missed: seconds to catch up with a token that a plain round left out.
        late: rounds after which times are known.
        noise: of all times, as the sigma of a lognormal factor.
        ragged: share of its time that a plain round takes longer where rows are of several lengths.
    """

    def __init__(
        self,
        chance: Chance | float,
        forward: Callable[[int, int], float],
        draft: float,
        rows: int = 1,
        *,
        missed: float = 0.0,
        late: int = 0,
        noise: float = 0.0,
        ragged: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.ragged = ragged
        self.chance: Chance = chance if callable(chance) else lambda row, number: chance
        self.forward, self.draft, self.missed = forward, draft, missed
        self.rows, self.late, self.noise = list(range(rows)), late, noise
        self.random = random.Random(seed)
        self.costs = deque[tuple[RoundCost, float]]()
        self.seconds, self.rounds, self.backlog = 0.0, 0, 0
        self.output = dict.fromkeys(self.rows, 0)
        self.blocks: list[int] = []
        self.began: dict[int, DraftLength] = {}  # what chose for a row when it was prefilled

    def round(self, length: DraftLength, left: Sequence[int] | None = None) -> None:
        """Play one round of all rows."""
        began = [self.began.get(row, length) for row in self.rows]
        is_ragged = len({self.output[row] for row in self.rows}) > 1
        drafted = length.choose(RoundRows(self.rows, began=began, left=left, is_ragged=is_ragged))
        if left is not None:
            drafted = [min(many, most - 1) for many, most in zip(drafted, left, strict=True)]
        block, rows, caught = 1 + max(drafted), len(self.rows), 0
        drafting = (block - 1) * self.draft * self._stall()
        if block > 1:
            caught, self.backlog = (self.backlog if self.backlog > 1 else 0), 0
            drafting += caught * self.missed
        else:
            self.backlog += 1
        accepted = [self._accepted(row, many) for row, many in zip(self.rows, drafted, strict=True)]
        step = self.forward(rows, block) * self._stall()
        if block == 1 and is_ragged:
            step *= 1 + self.ragged
        is_ragged |= min(rows, block) > 1
        done = RoundCost(rows, block, drafting, block - 1, caught, step, is_ragged=is_ragged)
        self.costs.append((done, 1 + sum(accepted) / rows))
        if len(self.costs) > self.late:
            length.observe_cost(*self.costs.popleft())
        for row, right in zip(self.rows, accepted, strict=True):
            self.output[row] += 1 + right
        length.observe(self.rows, drafted, accepted)
        self.seconds += drafting + step
        self.rounds += 1
        self.blocks.append(block)

    def run(self, length: DraftLength, rounds: int) -> float:
        """Returns the speed over some rounds, as a multiple of plain decoding's."""
        before, output = self.seconds, sum(self.output.values())
        for _ in range(rounds):
            self.round(length)
        made = (sum(self.output.values()) - output) / len(self.rows)
        return made * self.forward(len(self.rows), 1) / (self.seconds - before)

    def close(self, length: DraftLength, tokens: int) -> float:
        """Returns seconds of a batch that nobody joins, until all have said so many tokens."""
        begun = self.seconds
        while self.rows:
            left = [tokens - self.output[row] for row in self.rows]
            self.round(length, left)
            self.rows = [row for row in self.rows if self.output[row] < tokens]
        length.close()
        return self.seconds - begun

    def _accepted(self, row: int, many: int) -> int:
        chance, count = self.chance(row, self.rounds), 0
        while count < many and self.random.random() < chance:
            count += 1
        return count

    def _stall(self) -> float:
        return self.random.lognormvariate(0.0, self.noise)


def line(slope: float) -> Callable[[int, int], float]:
    """A plain step of one row takes a second, each further token `slope` of it."""
    return lambda rows, block: 1.0 + slope * (rows * block - 1)


def best_fixed(machine: Callable[[], Machine], rounds: int = 600) -> float:
    return max(machine().run(DraftLength(size), rounds) for size in range(LARGEST + 1))


FIGURES = (
    (0.9, 0.1, 0.02), (0.8, 0.05, 0.02), (0.7, 0.1, 0.05), (0.5, 0.05, 0.01), (0.95, 0.02, 0.0),
    (0.02, 0.1, 0.05), (0.6, 0.9, 0.05), (0.5, 0.1, 1.0),
)  # fmt: skip


@pytest.mark.parametrize(
    ("figures", "batch"), diagonal(FIGURES, [(1, 0), (8, 1), (1, 1), (8, 0)]), ids=str
)
def test_it_is_near_the_best_fixed_length_within_forty_rounds(
    figures: tuple[float, float, float], batch: tuple[int, int]
) -> None:
    """The draft's chance, seconds and slope; the rows, and rounds by which reports are late."""
    (chance, draft, slope), (rows, late) = figures, batch

    def machine() -> Machine:
        return Machine(chance, line(slope), draft, rows, late=late, noise=0.05)

    ours, length = machine(), AdaptiveDraftLength(LARGEST)
    ours.run(length, 40)
    assert ours.run(length, 600) >= 0.95 * best_fixed(machine)


@pytest.mark.parametrize("seed", thinned(range(24), range(8)))
def test_it_is_never_far_below_plain_on_random_machines(seed: int) -> None:
    """Costs grow with the block by any steps, acceptance falls with any step; the first rounds
    count."""
    draw = random.Random(seed)
    steps = [draw.choice((0.0, 0.01, 0.1, 0.5)) for _ in range(LARGEST + 2)]
    rates = [draw.random() ** draw.choice((0.3, 1, 3)) for _ in range(4)]
    turn = draw.randrange(100, 300)
    machine = Machine(
        lambda row, number: rates[(number // turn + row) % len(rates)],
        lambda rows, block: 0.03 * (1 + 0.1 * rows) * (1 + sum(steps[:block])),
        0.03 * draw.choice((0.01, 0.1, 0.3, 0.9)),
        draw.choice((1, 1, 2, 8, 32)),
        missed=0.03 * draw.choice((0.0, 0.002, 0.01)),
        late=draw.choice((0, 1)),
        noise=0.05,
        seed=seed,
    )
    assert machine.run(AdaptiveDraftLength(LARGEST), 800) >= 0.97


@pytest.mark.parametrize("late", [0, 1])
def test_drafts_that_are_never_right_end_soon_and_are_tried_again(late: int) -> None:
    notes: list[str] = []
    machine = Machine(0.0, line(0.01), 0.2, late=late)
    machine.run(AdaptiveDraftLength(LARGEST, notes.append), 1000)
    drafted = [number for number, block in enumerate(machine.blocks) if block > 1]
    assert sum(number < 40 for number in drafted) <= 8
    assert 2 <= sum(number >= 40 for number in drafted) <= 25, "trials"
    assert any("plain decoding for" in note for note in notes)


@pytest.mark.parametrize("late", [0, 1])
def test_a_draft_that_turns_good_is_noticed(late: int) -> None:
    turn = 400
    machine = Machine(lambda row, at: 0.9 * (at > turn), line(0.01), 0.2, late=late, seed=1)
    length = AdaptiveDraftLength(LARGEST)
    machine.run(length, turn + LONGEST_PAUSE + 64)
    assert machine.run(length, 200) > 0.9 * best_fixed(lambda: Machine(0.9, line(0.01), 0.2))


@pytest.mark.parametrize("late", [0, 1])
def test_a_draft_that_turns_bad_is_left_soon(late: int) -> None:
    machine = Machine(lambda row, at: 0.9 if at < 200 else 0.0, line(0.01), 0.2, late=late)
    machine.run(AdaptiveDraftLength(LARGEST), 260)
    assert sum(block > 1 for block in machine.blocks[200:]) <= 20
    assert sum(block > 1 for block in machine.blocks[225:]) <= 2


class Alarms(list[str]):
    """Keeps alarms, and no other notes."""

    def __call__(self, text: str, alarm: str = "") -> None:
        if alarm:
            self.append(f"{alarm}: {text}")


@pytest.mark.parametrize("late", [0, 1])
def test_acceptance_that_falls_until_drafts_pay_no_more_is_an_alarm_once(late: int) -> None:
    alarms = Alarms()
    machine = Machine(lambda row, at: 0.85 if at < 200 else 0.03, line(0.01), 0.2, late=late)
    length = AdaptiveDraftLength(LARGEST, alarms)
    machine.run(length, 200)
    assert not alarms
    machine.run(length, 1000)
    (alarm,) = alarms
    assert alarm.startswith("acceptance: num_draft_tokens auto: acceptance fell from 0.")
    assert "and drafts pay no more" in alarm


@pytest.mark.parametrize("seed", thinned(range(12), range(3)))
def test_drafts_that_end_for_other_reasons_are_no_alarm(seed: int) -> None:
    """Rows join until a round is too dear for drafts, or acceptance falls and they pay still."""
    dear, alarms = Machine(0.8, line(0.2), 0.2, noise=0.05, seed=seed), Alarms()
    length = AdaptiveDraftLength(LARGEST, alarms)
    dear.run(length, 200)
    dear.rows, dear.output = list(range(32)), dict.fromkeys(range(32), 0)
    dear.run(length, 200)
    assert dear.blocks[-20:].count(1) > 10
    falling = Machine(lambda row, at: 0.9 if at < 200 else 0.6, line(0.01), 0.05, seed=seed)
    falling.run(AdaptiveDraftLength(LARGEST, alarms), 600)
    assert falling.blocks[-20:].count(1) < 10
    assert not alarms


def test_a_kind_of_prompts_that_drafts_fail_on_is_an_alarm_when_it_comes_first() -> None:
    known, alarms = Acceptance(), Alarms()
    counts = list[int]()
    for kind, chance in 4 * (("text", 0.85), ("pictures", 0.0)):
        length = AdaptiveDraftLength(LARGEST, alarms, known.of(kind))
        Machine(chance, line(0.01), 0.2, seed=len(counts)).run(length, 400)
        length.close()
        counts.append(len(alarms))
    assert counts[:2] == [0, 1]
    assert counts[-3] == counts[-1], "by then it is known"


def test_a_row_that_joins_is_drafted_for_though_others_are_not_worth_it() -> None:
    """A pause ends with a row of a kind whose drafts are good, and returns when that has gone."""
    known = Acceptance()
    clips, texts = known.of("clips"), known.of("texts")
    clips.accepted, clips.refused = 100.0, 5.0
    machine = Machine(lambda row, at: 0.95 * (row == 1), line(0.002), 0.1)
    length = AdaptiveDraftLength(LARGEST, experience=texts)
    machine.run(length, 60)
    assert machine.blocks[-20:].count(1) >= 19
    machine.rows, machine.output[1] = [0, 1], 0
    machine.began[1] = AdaptiveDraftLength(LARGEST, experience=clips)
    machine.run(length, 60)
    assert machine.blocks[-40:].count(1) <= 10
    machine.rows = [0]
    machine.run(length, 40)
    assert machine.blocks[-20:].count(1) >= 18


def test_rows_without_a_draft_do_not_make_drafts_look_good() -> None:
    length = AdaptiveDraftLength(LARGEST)
    machine = Machine(0.9, line(0.01), 0.1)
    machine.run(length, 60)
    assert length.choose(RoundRows([0], may_draft=[False])) == [0]
    mixed = length.choose(RoundRows([0, *range(10, 25)], may_draft=[True, *15 * [False]]))
    assert max(mixed) <= 1, "one row of sixteen gains, all of them pay"


@pytest.mark.parametrize("chance", [0.6, 0.8, 0.9])
def test_short_texts_of_a_known_pair_are_near_the_best_fixed_length(chance: float) -> None:
    """A text's few rounds scatter; what earlier ones taught keeps them from ending the drafts."""

    def seconds(length: Callable[[], DraftLength]) -> float:
        machines = [Machine(chance, line(0.02), 0.2, seed=seed) for seed in range(40)]
        return sum(machine.close(length(), 100) for machine in machines)

    known = Acceptance()
    ours = seconds(lambda: AdaptiveDraftLength(LARGEST, experience=known))
    fixed = [seconds(lambda size=size: DraftLength(size)) for size in range(9)]  # type: ignore[misc]
    assert min(fixed) / ours >= 0.95


def test_one_stalled_time_of_a_draft_decides_nothing() -> None:
    class Stalled(Machine):
        def _stall(self) -> float:
            return 8.0 if self.rounds == 1 else 1.0

    machine, length = Stalled(0.9, line(0.01), 0.2), AdaptiveDraftLength(LARGEST)
    machine.run(length, 20)
    assert machine.blocks[10:].count(1) <= 3


@pytest.mark.parametrize("late", [0, 1])
def test_one_block_that_stalled_is_not_slow_for_good(late: int) -> None:
    """What is not drafted is not timed again, so that one stall must not decide."""

    class Stalled(Machine):
        def _stall(self) -> float:
            return 3.0 if self.rounds % 23 == 22 else 1.0

    ours, length = Stalled(0.7, line(0.1), 0.1, 8, late=late), AdaptiveDraftLength(LARGEST)
    ours.run(length, 100)
    assert sum(block > 1 for block in ours.blocks[40:]) >= 48


# Closed batches: nobody joins, the slowest row ends them

TOKENS = 96


ROWS, BLOCKS = (1, 8, 32), (1, 2, 3, 5, 9, 17)
FORWARDS = (
    (3.6, 4.03, 4.09, 4.23, 4.46, 4.88),
    (5.1, 6.35, 6.77, 7.47, 9.12, 12.56),
    (10.2, 11.97, 13.76, 16.84, 23.58, 36.45),
)
DRAFTS = (0.81, 1.3, 2.25)
"""Milliseconds of the study `replay`: of the target's forwards by rows and block, and of a draft's
by rows. Plain rounds are of rows of one length; `RAGGED` is what others take more."""
RAGGED = 0.08


def replayed(rows: int, block: int) -> float:
    return float(np.interp(rows, ROWS, [np.interp(block, BLOCKS, line) for line in FORWARDS]))


@pytest.mark.parametrize(("rows", "chance"), diagonal(ROWS, [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.95]))
def test_a_closed_batch_is_no_slower_than_plain_and_near_the_best_length(
    rows: int, chance: float
) -> None:
    def seconds(length: Callable[[], DraftLength]) -> float:
        draft = float(np.interp(rows, ROWS, DRAFTS))
        machines = [
            Machine(chance, replayed, draft, rows, noise=0.05, ragged=RAGGED, seed=seed)
            for seed in range(8 if rows > 1 else 24)
        ]
        return sum(machine.close(length(), TOKENS) for machine in machines)

    fixed = [seconds(lambda size=size: DraftLength(size)) for size in range(9)]  # type: ignore[misc]
    known = Acceptance()
    ours = seconds(lambda: AdaptiveDraftLength(LARGEST, experience=known))
    assert fixed[0] / ours >= 0.98
    assert min(fixed) / ours >= 0.95


def test_batches_of_a_pair_that_only_gains_on_ragged_rows_are_left_even() -> None:
    """A draft makes every later round of its batch dearer, which its gain must pay as well."""

    def forward(rows: int, block: int) -> float:
        return 1.0 if block == 1 else 1.2 + 0.06 * (block - 1)

    known = Acceptance()
    machines = [
        Machine(0.5, forward, 0.25, 8, noise=0.05, ragged=0.2, seed=seed) for seed in range(30)
    ]
    for machine in machines:
        machine.close(AdaptiveDraftLength(LARGEST, experience=known), TOKENS)
    whole = [set(machine.blocks) == {1} for machine in machines[4:]]
    assert sum(whole) >= 0.8 * len(whole)
    alone = Machine(0.5, forward, 0.25, 8, ragged=0.2)
    plain, fixed = alone.close(DraftLength(0), TOKENS), Machine(0.5, forward, 0.25, 8, ragged=0.2)
    assert fixed.close(DraftLength(1), TOKENS) > 1.03 * plain
    assert sum(machine.seconds for machine in machines) <= 1.03 * len(machines) * plain


def test_what_the_slowest_rows_get_counts_in_a_closed_batch() -> None:
    """A row that repeats its prompt does not bring the end nearer of another that does not."""
    length, chances = AdaptiveDraftLength(4), [np.array([0.9, 0.9]), np.array([])]
    for left in range(TOKENS, TOKENS // 2, -1):
        length.choose(RoundRows([0, 1], [False, False], looked_up=chances, left=[left - 40, left]))
        length.observe_cost(RoundCost(2, 1, seconds=1.0), 1.0)
        length.observe([0, 1], [2, 0], [2, 0])
    assert length.mean([0, 1], [2, 0]) < 0.1
    assert length.mean([1], [0]) == 0
    batch = RoundRows([0, 1], [False, False], looked_up=chances, may_end_early=True)
    length.choose(replace(batch, left=[8, 48]))  # most rows will go on to their limit
    assert 0.1 < length.mean([0, 1], [2, 0]) < 0.5
    length.choose(replace(batch, left=[2000, 2048]))  # few will, so any may be the last
    assert length.mean([0, 1], [2, 0]) == pytest.approx(1, abs=0.01)
    length.choose(batch)  # others come and go
    assert length.mean([0, 1], [2, 0]) == 1


@pytest.mark.parametrize(("chance", "rows", "is_worth"), [(0.3, 32, False), (0.8, 32, True)])
def test_rows_that_begin_together_are_drafted_for_where_the_last_row_gains(
    chance: float, rows: int, is_worth: bool
) -> None:
    """Once a batch was seen, before the draft reads any prompt of the next; but for some."""
    known = Acceptance()
    for seed in range(3):
        length = AdaptiveDraftLength(LARGEST, experience=known)
        if length.takes_rows(100, TOKENS, [TOKENS] * rows):
            length.prefilled(100, 0.5)
        Machine(chance, replayed, 2.25, rows, seed=seed).close(length, TOKENS)
    decisions = [
        AdaptiveDraftLength(LARGEST, experience=known).takes_rows(100, TOKENS, [TOKENS] * rows)
        for _ in range(EXPLORE_EVERY)
    ]
    assert sum(decisions) == (EXPLORE_EVERY if is_worth else pytest.approx(0, abs=1))


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_draft_is_not_prefilled_where_prefills_are_what_requests_wait_for(
    is_behind: bool,
) -> None:
    """Rows that end sooner leave fewer to share a round with where each begins in two steps."""
    known = Acceptance()
    for rows in (1, 8, 32):
        for block in (1, 5, 9):
            seconds = 0.01 + 0.0001 * rows * block
            known.requests.times.add(RoundCost(rows, block, is_ragged=rows > 1, seconds=seconds))
            known.requests.times.add(RoundCost(rows, block, seconds=seconds))
        known.requests.times.add_draft(rows, 0.001 + 0.00005 * rows)
    for _ in range(50):
        known.observe(5, 4)
    known.end(60)
    known.prefilled(100, 0.002)
    length, decisions = AdaptiveDraftLength(LARGEST, experience=known), []
    for _ in range(EXPLORE_EVERY):
        for _ in range(2):
            known.requests.expect(4 if is_behind else 32, 28, 32)
        decisions.append(length.takes_rows(100, None))
    assert sum(decisions) == (pytest.approx(1, abs=1) if is_behind else EXPLORE_EVERY)


# Trees --------------------------------------------------------------------------------------------


def levels() -> list[Size]:
    shape = TreeShape(STATIC_TREE)
    return [Size(shape.sizes[depth], depth) for depth in range(1, shape.depth + 1)]


def tree_speed(
    rate: float, draft: float, sizing: TreeSize, tokens: int = 3000, later: float | None = None
) -> float:
    """Returns speed of a tree's levels, of which one node is right with probability `rate`, and of
    the second half of the tokens with `later`."""
    sizes, chance = levels(), random.Random(1)
    generated, spent = 0, 0.0
    while generated < tokens:
        if later is not None and generated > tokens / 2:
            rate = later
        size = sizing.choose(room=tokens - generated, is_open=True)
        path: list[int] = []
        while len(path) < size.depth and chance.random() < rate:
            path.append(sizes[len(path) - 1].nodes if path else 0)  # the level's first node
        drafting = draft * size.depth
        done = RoundCost(1, 1 + size.nodes, drafting, size.depth, seconds=1 + 0.02 * size.nodes)
        sizing.observe_cost(done, 1 + len(path) if size.depth else None)
        if size.depth:
            sizing.observe(size, [path])
        generated += 1 + len(path)
        spent += drafting + done.seconds
    return generated / spent


@pytest.mark.parametrize(
    ("rate", "draft"), [(0.0, 0.1), (0.3, 0.5), (0.5, 0.9), (0.95, 0.05), (0.8, 0.1), (0.6, 0.1)]
)
def test_a_tree_has_as_many_levels_as_pay(rate: float, draft: float) -> None:
    best = max(tree_speed(rate, draft, TreeSize(size)) for size in levels())
    ours = tree_speed(rate, draft, MeasuredSize(levels()[-1], levels()))
    assert ours >= max(0.93 * best, 0.95)


def test_heads_whose_acceptance_falls_are_an_alarm_once() -> None:
    sizing, alarms = MeasuredSize(levels()[-1], levels()), Alarms()
    sizing.begin(alarms)
    tree_speed(0.8, 0.1, sizing)
    assert not alarms
    tree_speed(0.8, 0.1, sizing, later=0.02)
    (alarm,) = alarms
    assert alarm.startswith("acceptance: nodes auto: acceptance fell from 0.")
