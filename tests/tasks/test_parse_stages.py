"""Which stages pay is told by what pages took; no clock here."""

from __future__ import annotations

from sooner.tasks.parse.stages import AGAIN, BOTH, PAGE, StageChoice


def run(paces: dict[str, float], pages: int) -> list[str]:
    choice, gone = StageChoice(), []
    for _ in range(pages):
        gone.append(choice.pick())
        choice.add(gone[-1], 100, 100 * paces[gone[-1]])
    return gone


def test_each_way_is_tried_then_the_faster_one_kept() -> None:
    assert run({PAGE: 1.0, BOTH: 2.0}, 8) == [PAGE, BOTH, *6 * [PAGE]]
    assert run({PAGE: 2.0, BOTH: 1.0}, 8) == [PAGE, BOTH, *6 * [BOTH]]


def test_the_slower_one_gets_another_chance() -> None:
    gone = run({PAGE: 1.0, BOTH: 2.0}, 2 * AGAIN + 1)
    assert [number for number, way in enumerate(gone) if way == BOTH] == [1, AGAIN, 2 * AGAIN]


def test_documents_change() -> None:
    choice = StageChoice({PAGE: 1.0, BOTH: 1.5}, pages=3)
    for _ in range(6):
        choice.add(PAGE, 10, 30.0)
    assert choice.pick() == BOTH


def test_a_page_without_text_teaches_nothing() -> None:
    choice = StageChoice()
    choice.add(PAGE, 0, 5.0)
    assert choice.pick() == PAGE
