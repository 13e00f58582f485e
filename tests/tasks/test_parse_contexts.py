"""Drafts in the form that a target writes, cut into tokens as they stand on the page."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from sooner.documents import PageDraft, Region
from sooner.tasks.parse.contexts import cut, page_drafts, page_texts, pieces_of, region_drafts
from sooner.tasks.parse.families import FORMS


@pytest.fixture(scope="module")
def joining() -> PreTrainedTokenizerFast:
    """Byte-pair encoding that joins marks to the line feeds behind them, as Qwen's does."""
    core = Tokenizer(models.BPE())
    marks = Regex(r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+| ?\p{L}+|\p{N}|\s+")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(marks, "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    text = "The end.\n\nThe start of it.\n\n- one\n- two\n\n"
    core.train_from_iterator([text] * 20, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=core)


def test_drafts_are_cut_as_they_stand_on_the_page(joining: PreTrainedTokenizerFast) -> None:
    regions = [
        Region(None, order=0, drafts=["The end.", "The start."]),
        Region(None, "List-item", 1, ["- one"]),
        Region(None, "List-item", 2, ["- two"]),
        Region(None, order=3, drafts=["The start of it."]),
    ]
    pieces = pieces_of(PageDraft(regions), "markdown")
    ends = ["The end.\n\n", "- one\n", "- two\n\n", "The start of it."]
    assert page_texts(pieces, "markdown") == ends
    groups = page_drafts(joining, pieces, "markdown", [999])
    assert [len(group) for group in groups] == [2, 1, 1, 1]
    rows = [group[0] for group in groups]
    (joined,) = joining(".\n\n")["input_ids"]
    assert rows[0][-1] == joined  # and not a full stop alone
    assert rows[3][-1] == 999
    assert [joining.decode(row) for row in rows[:3]] == ["The end.\n\n", "- one\n", "- two\n\n"]
    assert joining.decode(groups[0][1]) == "The start.\n\n"
    assert [*chain(*rows[:3]), *rows[3][:-1]] == joining(
        "The end.\n\n- one\n- two\n\nThe start of it."
    )["input_ids"]  # fmt: skip
    (alone,) = region_drafts(joining, pieces[3], [999])
    assert alone == [*joining("The start of it.")["input_ids"], 999]


@given(st.lists(st.sampled_from(["a.", "\n\n", " b", "- c", ".\n"]), min_size=1, max_size=6))
def test_cuts_add_up(joining: PreTrainedTokenizerFast, texts: list[str]) -> None:
    assert [*chain(*cut(joining, texts))] == joining("".join(texts))["input_ids"]


def test_forms_are_those_of_the_target() -> None:
    regions = [
        Region((10, 20, 30, 40), "Title", 0, ["Fruit"]),
        Region((10, 50, 30, 60), "Table", 1, ["a\tb\n1\t2"]),
    ]
    draft = PageDraft(regions, size=(100, 100))
    texts = {form: [piece.texts[0] for piece in pieces_of(draft, form)] for form in FORMS}
    assert texts["markdown"][0] == "# Fruit"
    assert "| a" in texts["markdown"][1]
    assert "<td>" in texts["markdown-html"][1]
    cell = json.loads(texts["dots"][0])
    assert cell == {"bbox": [10, 20, 30, 40], "category": "Title", "text": "# Fruit"}
    scaled = pieces_of(draft, "dots", (200, 50))
    assert json.loads(scaled[0].texts[0])["bbox"] == [20, 10, 60, 20]
