"""Which stages pay is told by what pages took; no clock here."""

from __future__ import annotations

from sooner.tasks.parse.regions import (
    BOTH,
    COLD,
    ENOUGH,
    PAGE,
    TRIAL,
    StageChoice,
)

FIRST = COLD + ENOUGH


def run(paces: dict[str, float], pages: int) -> tuple[list[str], StageChoice]:
    """The way of each page."""
    choice, gone = StageChoice(), []
    for _ in range(pages):
        gone.append(choice.ways.pick())
        choice.add(gone[-1], 100, 100 * paces[gone[-1]])
    return gone, choice


def test_each_way_is_tried_then_the_faster_stays() -> None:
    tried = [*FIRST * [PAGE], *FIRST * [BOTH]]
    assert run({PAGE: 1.0, BOTH: 2.0}, 12)[0] == [*tried, *6 * [PAGE]]
    assert run({PAGE: 2.0, BOTH: 1.0}, 12)[0] == [*tried, *6 * [BOTH]]


def test_what_stage_1_may_spend_grows_only_where_it_pays() -> None:
    assert run({PAGE: 1.0, BOTH: 1.5}, 300)[1].share == TRIAL
    paid = run({PAGE: 1.5, BOTH: 1.0}, 20)[1]
    assert paid.share == 1.0
    for _ in range(6):
        paid.add(BOTH, 100, 1000.0)
    assert paid.share == TRIAL
