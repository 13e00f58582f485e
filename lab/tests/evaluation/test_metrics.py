"""Metrics against values worked out by hand, and against what must hold for any text."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.benchmarks import PIPES, TABLE
from sooner.errors import SoonerError
from sooner_lab.evaluation import libraries
from sooner_lab.evaluation.metrics import (
    bleu,
    edit_distance,
    meteor,
    overlap,
    split_words,
    teds,
    teds_structure,
    word_accuracy,
)

TEXTS = st.text(alphabet="ab 中", max_size=12)


def cells(*rows: str) -> str:
    """A table of one letter a cell."""
    inner = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{inner}</table>"


@given(TEXTS, TEXTS)
def test_every_metric_is_between_0_and_1_and_knows_the_same_text(output: str, true: str) -> None:
    words = overlap(output, true)
    values = [word_accuracy(output, true), bleu(output, true), meteor(output, true), words.f1]
    values += [edit_distance(output, true), words.precision, words.recall]
    assert all(0 <= value <= 1 for value in values)
    assert edit_distance(true, true) == 0
    assert word_accuracy(true, true) == overlap(true, true).f1 == bleu(true, true) == 1


def test_edit_distance_is_by_the_longer_text() -> None:
    assert edit_distance("kitten", "sitting") == pytest.approx(3 / 7)
    assert edit_distance("", "abc") == edit_distance("abc", "") == 1


def test_words_are_between_blanks_and_chinese_ones_are_characters() -> None:
    assert split_words("a  b-c,\n中文 d한") == ["a", "b-c,", "中", "文", "d", "한"]


def test_word_accuracy_counts_words_and_a_runaway_comes_near_zero() -> None:
    assert word_accuracy("a b x d", "a b c d") == pytest.approx(3 / 4)
    assert word_accuracy("a b " + "x " * 98, "a b") == pytest.approx(2 / 100)


def test_overlap_ignores_order_and_repetition() -> None:
    words = overlap("b a a x", "a b c")
    assert (words.precision, words.recall) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert overlap("", "a").f1 == overlap("a", "").f1 == 0


def test_bleu_is_sacrebleus() -> None:
    import sacrebleu

    output, true = "the cat sat on a mat today", "the cat sat on the mat"
    assert bleu(output, true) == pytest.approx(sacrebleu.sentence_bleu(output, [true]).score / 100)
    assert bleu("天气很坏。", "天气很好。") > 0  # words of one character, not one word


def test_meteor_matches_stems_but_no_synonyms_and_fetches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nltk = importlib.import_module("nltk")
    monkeypatch.setattr(nltk, "download", lambda *_: pytest.fail("fetched"))
    same = meteor("the cats sat", "the cats sat")
    assert same == pytest.approx(1 - 0.5 / 27)  # one chunk of three words
    assert meteor("the cat sat", "the cats sat") == pytest.approx(same)
    assert meteor("the feline sat", "the cats sat") < same
    assert meteor("", "a") == 0


def test_teds_of_the_same_table_in_two_notations() -> None:
    assert teds(PIPES, TABLE) == teds_structure(PIPES, TABLE) == 1
    assert teds("", TABLE) == teds(TABLE, "") == 0
    assert teds("", "") == 1


def test_teds_counts_nodes_and_letters() -> None:
    true = cells("ab", "cd")  # 2 rows and 4 cells: 6 nodes
    assert teds(cells("ab", "cx"), true) == pytest.approx(1 - 1 / 6)
    assert teds_structure(cells("ab", "cx"), true) == 1
    assert teds(cells("ab"), true) == pytest.approx(1 - 3 / 6)
    assert teds(cells("ab", "cd", "ef"), true) == pytest.approx(1 - 3 / 9)
    halves = "<table><tr><td>good</td></tr></table>", "<table><tr><td>gold</td></tr></table>"
    assert teds(*halves) == pytest.approx(1 - 0.25 / 2)


def test_a_table_that_runs_away_has_nothing_of_the_true_table() -> None:
    assert teds(cells(*["ab"] * 2000), cells("ab", "cd")) == 0
    assert teds(cells(*["ab"] * 10), cells("ab")) == pytest.approx(1 - 27 / 30)


def test_teds_minds_spans() -> None:
    wide = "<table><tr><td colspan=2>a</td></tr><tr><td>c</td><td>d</td></tr></table>"
    apart = "<table><tr><td>a</td></tr><tr><td>c</td><td>d</td></tr></table>"
    assert teds(apart, wide) == teds_structure(apart, wide) == pytest.approx(1 - 1 / 5)


def test_a_missing_library_is_a_single_line_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(libraries.importlib, "import_module", missing)
    with pytest.raises(
        SoonerError, match=r"needs rapidfuzz .*pip install 'sooner-lab\[eval\]'"
    ) as caught:
        edit_distance("a", "b")
    assert "\n" not in str(caught.value)


def test_the_check_before_a_run_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.check()
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SoonerError, match=r"rapidfuzz.*pip install 'sooner-lab\[eval\]'"):
        libraries.check()
