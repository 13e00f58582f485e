"""The unit tests of olmOCR-Bench, each where it passes and where it fails."""

from __future__ import annotations

from typing import Any

import pytest

from evaluation.benchmarks import PIPES, TABLE
from sooner_lab.evaluation.documents.unit_tests import TESTS

SPANS = (
    "<table><tr><th rowspan=2>city</th><th colspan=2>income</th></tr>"
    "<tr><th>2019</th><th>2020</th></tr><tr><td>Bonn</td><td>5</td><td>7</td></tr></table>"
)


def passes(kind: str, markdown: str, **test: Any) -> bool:
    return TESTS[kind](test, markdown)


def test_present_allows_as_many_letters_as_it_sets() -> None:
    page = "It was the **best**\nof times — truly."
    assert passes("present", page, text="the best of times - truly")
    assert not passes("present", page, text="the worst of times")
    assert passes("present", page, text="the bust of times", max_diffs=2)
    assert not passes("present", page, text="the bust of crimes", max_diffs=2)
    assert not passes("present", page, text="THE BEST")
    assert passes("present", page, text="THE BEST", case_sensitive=False)


def test_present_may_ask_for_the_ends_of_a_page() -> None:
    page = "head " + "x" * 50 + " foot"
    assert passes("present", page, text="head", first_n=10)
    assert not passes("present", page, text="foot", first_n=10)
    assert passes("present", page, text="foot", last_n=10)
    assert passes("present", page, text="foot", first_n=10, last_n=10)


def test_absent_is_not_misled_by_a_short_page() -> None:
    assert passes("absent", " ", text="Page 7 of 9")
    assert not passes("present", " ", text="Page 7 of 9")
    assert not passes("absent", "Page 7 of 9", text="Page 7 of 9")


def test_order_takes_any_places_that_fit() -> None:
    page = "alpha then beta then alpha"
    assert passes("order", page, before="alpha", after="beta")
    assert passes("order", page, before="beta", after="alpha")
    assert not passes("order", "beta, alpha", before="alpha", after="beta")
    assert not passes("order", page, before="alpha", after="gamma")
    assert passes("order", "alpho, beta", before="alpha", after="beta", max_diffs=1)


@pytest.mark.parametrize("page", [TABLE, PIPES])
def test_table_cells_by_their_neighbours(page: str) -> None:
    assert passes("table", page, cell="apple", right="3", down="pear", up="fruit")
    assert passes("table", page, cell="5", top_heading="price", left_heading="pear")
    assert not passes("table", page, cell="apple", right="5")
    assert not passes("table", page, cell="fruit", up="apple")
    assert not passes("table", page, cell="melon")
    assert not passes("table", "no table: apple 3", cell="apple")


def test_table_headings_and_spans() -> None:
    assert passes("table", SPANS, cell="7", top_heading="income")
    assert passes("table", SPANS, cell="7", top_heading="2020", up="2020")
    assert passes("table", SPANS, cell="2019", up="income", left="city")
    assert passes("table", SPANS, cell="Bonn", up="city")
    assert not passes("table", SPANS, cell="5", top_heading="city")


def test_pipes_can_be_left_out() -> None:
    assert not passes("table", PIPES, cell="apple", ignore_markdown_tables=True)
    assert passes("table", TABLE, cell="apple", ignore_markdown_tables=True)


def test_baseline() -> None:
    assert passes("baseline", "A sound page.")
    assert not passes("baseline", " \n--")
    assert not passes("baseline", "words " + "ab" * 31)
    assert passes("baseline", "words " + "ab" * 30)
    assert not passes("baseline", "words 中文")
    assert passes("baseline", "words 中文", check_disallowed_characters=False)
    assert passes("baseline", "7", max_length=1)
    assert not passes("baseline", "77", max_length=1)
