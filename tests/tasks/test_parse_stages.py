"""Which stages pay is told by what pages took; no clock here."""

from __future__ import annotations

import pytest

from sooner.tasks.parse.stages import (
    BOTH,
    COLD,
    ENOUGH,
    PAGE,
    TRIAL,
    StageChoice,
)

FIRST = COLD + ENOUGH


def run(
    paces: dict[str, float], pages: int, slow: dict[int, float] | None = None
) -> tuple[list[str], StageChoice]:
    """The way of each page; page `n` is `slow[n]` times as slow."""
    choice, gone = StageChoice(), []
    for number in range(pages):
        gone.append(choice.pick())
        pace = paces[gone[-1]] * (slow or {}).get(number, 1.0)
        choice.add(gone[-1], 100, 100 * pace)
    return gone, choice


def test_each_way_is_tried_then_the_faster_stays() -> None:
    tried = [*FIRST * [PAGE], *FIRST * [BOTH]]
    assert run({PAGE: 1.0, BOTH: 2.0}, 12)[0] == [*tried, *6 * [PAGE]]
    assert run({PAGE: 2.0, BOTH: 1.0}, 12)[0] == [*tried, *6 * [BOTH]]


@pytest.mark.parametrize("which", range(30))
@pytest.mark.parametrize(("faster", "slower"), [(PAGE, BOTH), (BOTH, PAGE)])
def test_a_page_that_was_ten_times_slower_misleads_nobody(
    which: int, faster: str, slower: str
) -> None:
    """Wherever it falls, the first and cold pages included; without it 103 of 400 pages went the
    slower way."""
    paces = {faster: 1.0, slower: 1.5}
    undisturbed = run(paces, 400)[0].count(slower)
    assert run(paces, 400, {which: 10.0})[0].count(slower) <= undisturbed + 2
    assert undisturbed <= FIRST + 8


def test_what_stage_1_may_spend_grows_only_where_it_pays() -> None:
    assert run({PAGE: 1.0, BOTH: 1.5}, 300)[1].share == TRIAL
    paid = run({PAGE: 1.5, BOTH: 1.0}, 20)[1]
    assert paid.share == 1.0
    for _ in range(6):
        paid.add(BOTH, 100, 1000.0)
    assert paid.share == TRIAL
