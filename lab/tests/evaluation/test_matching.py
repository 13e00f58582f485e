"""Markdown to blocks, and blocks to those of the truth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner_lab.evaluation.documents.blocks import read_blocks
from sooner_lab.evaluation.documents.matching import match
from sooner_lab.evaluation.documents.plain import bare_latex, plain

A, B, C = "applesarecheapthisyear", "pearsandplumsarenot", "everybodylikescherries"


def kinds(markdown: str) -> list[tuple[str, str]]:
    return [(block.kind, block.text) for block in read_blocks(markdown)]


def test_blocks_of_a_page() -> None:
    page = (
        "# Head\ntext below\nmore\n\nsee $x$ and\n| a | b |\n|---|---|\n| 1 | 2 |\nbehind\n\n"
        "$$\nx\n\ny\n$$\n<table><tr><td>1\n\n2</td></tr></table>\n```python\na = 1\n\nb = 2\n```\n"
        "\\[ z \\]"
    )
    assert kinds(page) == [
        ("text", "# Head"),
        ("text", "text below\nmore"),
        ("text", "see $x$ and"),
        ("table", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("text", "behind"),
        ("formula", "$$\nx\n\ny\n$$"),
        ("table", "<table><tr><td>1\n\n2</td></tr></table>"),
        ("text", "a = 1\n\nb = 2\n"),
        ("formula", "\\[ z \\]"),
    ]


def test_what_breaks_off_is_read_to_its_end() -> None:
    assert kinds("<table><tr><td>1") == [("table", "<table><tr><td>1")]
    assert kinds("```\ncode") == [("text", "code")]
    assert kinds("$$ never closed\n\ntext") == [("text", "$$ never closed"), ("text", "text")]
    assert kinds("| one line with a pipe |") == [("text", "| one line with a pipe |")]
    assert kinds("  \n\n ") == []


@given(st.text(alphabet="a|-$`#<table>\n ", max_size=60))
def test_no_letter_of_a_text_is_lost(markdown: str) -> None:
    fenced = "```" in markdown  # the line of a fence is none of its code
    count = sum(block.text.count("a") for block in read_blocks(markdown))
    assert count <= markdown.count("a")
    assert fenced or count == markdown.count("a")


def test_plain_keeps_letters_and_digits_alone() -> None:
    marked = "## **Fruit** [here](x.md), 3 _kg_ <b>of</b> ![img](a.png)ﬁgs &amp; \\mathrm{x}"
    assert plain(marked) == "Fruithere3kgoffigsx"
    assert plain("水果，很便宜。") == "水果很便宜"


def test_latex_is_compared_without_its_looks() -> None:
    assert bare_latex(r"$$ \left( a + \mathrm{b} \right) \tag{3} $$") == "(a+b)"
    assert bare_latex(r"\[x_{1}\]") == bare_latex("x_1")
    assert bare_latex(r"\frac{ab}{cd}") == r"\frac{ab}{cd}"


def test_the_same_blocks_match_in_any_order() -> None:
    matches = {
        (pair.observed, pair.meant, pair.edits) for pair in match([C, A, B], [A, B, C], [1, 1, 1])
    }
    assert matches == {((0,), (2,), 0), ((1,), (0,), 0), ((2,), (1,), 0)}


@pytest.mark.parametrize("swap", [False, True])
def test_text_that_is_divided_otherwise_is_not_wrong(swap: bool) -> None:
    whole, parts = [A + B + C], [A, B, C]
    matches = match(parts, whole, [1]) if swap else match(whole, parts, [1, 1, 1])
    assert len(matches) == 1
    assert matches[0].edits == 0


def test_what_is_scored_and_what_is_not_stay_apart() -> None:
    matches = match([A + B], [A, B], [True, False])
    assert sorted(len(pair.meant) for pair in matches) == [1, 1]


def test_misses_and_surplus_are_alone() -> None:
    edits = {
        (pair.observed, pair.meant): pair.edits for pair in match([A, "0" * 9], [A, B], [1, 1])
    }
    assert edits == {((0,), (0,)): 0, ((1,), ()): 9, ((), (1,)): len(B)}


@given(*[st.lists(st.text(alphabet="abcd", min_size=1, max_size=8), max_size=5)] * 2)
def test_every_block_is_in_a_single_match(output: list[str], true: list[str]) -> None:
    matches = match(output, true, [0] * len(true))
    assert sorted(n for pair in matches for n in pair.observed) == list(range(len(output)))
    assert sorted(n for pair in matches for n in pair.meant) == list(range(len(true)))
    assert all(0 <= pair.edits <= pair.length for pair in matches)
