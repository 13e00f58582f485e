"""The arms of HSD: exact whatever the draft, and the literal one matches whole windows alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import method_matrix as matrix
import sooner
import tiny
from sooner.methods.aligned.alignment import Alignment, Prior
from sooner.methods.aligned.index import DraftIndex
from sooner.methods.aligned.method import grow
from sooner_lab.bench.hsd_arms import UNLIMITED, LiteralAlignment, LiteralHSD

NEW = 40
ARMS: dict[str, Callable[[Any], sooner.HSD]] = {
    "paper-literal": LiteralHSD.unlimited, "hsd-page": lambda drafts: sooner.HSD(drafts, nodes=NEW),
}  # fmt: skip
TEXT = list(range(100, 130))
"""A text in which no token comes twice."""

WRONG = 9


@pytest.fixture(scope="module")
def text() -> list[int]:
    """What HF's greedy decoding generates; nearly no window of it comes twice."""
    width = tiny.inputs("qwen3_vl", "uneven", 3)["input_ids"].shape[1]
    ids: list[int] = matrix.reference("qwen3_vl", "uneven", 3, NEW)[1, width:].tolist()
    assert len({tuple(ids[at : at + 3]) for at in range(NEW - 2)}) >= NEW - 3
    return ids


def wrong_every(step: int, tokens: list[int]) -> list[int]:
    """The text with every `step`-th token wrong."""
    return [WRONG if at % step == step - 1 else token for at, token in enumerate(tokens)]


def run(name: str, draft: list[int]) -> Any:
    """The three rows, of which the one in the middle has a draft."""
    return sooner.generate(
        tiny.model("qwen3_vl"),
        tiny.inputs("qwen3_vl", "uneven", 3),
        ARMS[name]([[], [draft], []]),
        max_new_tokens=NEW,
        eos_token_id=None,
    )


@pytest.mark.parametrize("name", ARMS)
def test_every_arm_generates_what_hf_does_whatever_the_draft(name: str, text: list[int]) -> None:
    expected = matrix.reference("qwen3_vl", "uneven", 3, NEW)
    for draft in (text, wrong_every(6, text), text[::-1], [WRONG] * 20):
        made = run(name, draft)
        assert made.sequences.tolist() == expected.tolist()
        assert made.stats.mode == "exact"


def test_the_literal_arm_accepts_drafts_and_fewer_of_them(text: list[int]) -> None:
    """A draft that is wrong at each eighth token is taken up at once by this library's arm."""
    draft = wrong_every(8, text)
    literal, aligned = (
        run(name, draft).stats.num_accepted_draft_tokens for name in ("paper-literal", "hsd-page")
    )
    assert 0 < literal < 0.8 * aligned


def row_of(*drafts: list[int]) -> LiteralAlignment:
    return LiteralAlignment(Alignment(DraftIndex(list(drafts)), Prior()))


def test_a_draft_is_followed_from_the_first_whole_window_on() -> None:
    row, opened = row_of(TEXT), Alignment(DraftIndex([TEXT]), Prior())
    assert opened.cursors, "HSD opens a draft before anything is generated"
    drafted = []
    for token in TEXT[:4]:
        drafted.append(len(row.cursors))
        row.advance([token])
    assert drafted == [0, 0, 0, 1]
    tree = grow(row, UNLIMITED, UNLIMITED, UNLIMITED)
    assert list(tree.tokens) == TEXT[4:], "a tree holds the continuation to its end"


def test_no_draft_follows_a_wrong_token_until_a_whole_window_matches() -> None:
    row = row_of(wrong_every(8, TEXT))
    row.advance(TEXT[:7])
    assert row.cursors
    for token in TEXT[7:10]:  # the one that the draft has wrongly, and two that it has
        row.advance([token])
        assert not row.cursors
    row.advance(TEXT[10:11])
    assert row.cursors


def test_windows_of_two_draft_nothing() -> None:
    row = row_of(wrong_every(3, TEXT))
    for token in TEXT:
        row.advance([token])
        assert not row.cursors


def test_all_continuations_of_a_window_are_merged_into_a_tree() -> None:
    """Two drafts part behind five tokens: what they share stands once, then each goes on."""
    other = [*TEXT[:5], *range(50, 60)]
    row = row_of(TEXT[:12], other)
    row.advance(TEXT[:3])
    tree = grow(row, UNLIMITED, UNLIMITED, UNLIMITED)
    assert sorted(tree.tokens) == sorted([*TEXT[3:12], *other[5:]])
