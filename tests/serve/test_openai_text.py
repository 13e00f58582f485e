"""Streamed text: whatever is split between tokens or rounds, the pieces are the text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from serve.spoken import byte_fallback, byte_level, ids_of
from serve.stub_engine import request_of
from sooner.engine.request import TokenLogprobs
from sooner.serve.engine_thread import Tokens
from sooner.serve.openai.choice import AnswerParser, Choice, StopStrings, Update
from sooner.tasks.detokenizer import BROKEN, MAX_PENDING, Detokenizer, special_ids

texts = some.text(
    some.one_of(
        some.sampled_from("STOPEND ,.\n"),
        some.characters(codec="utf-8"),
        some.sampled_from("é漢🦊"),
    ),
    max_size=40,
)
blocks = some.lists(some.integers(1, 7), min_size=1, max_size=12)


def in_blocks(ids: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    left, size = list(ids), itertools.cycle(sizes)
    while left:
        many = next(size)
        yield left[:many]
        left = left[many:]


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    stream = Detokenizer(tokenizer, special_ids(tokenizer))
    return [*(stream.add(token) for token in ids), stream.end()]


@given(texts)
def test_pieces_are_the_text_and_no_letter_is_split(text: str) -> None:
    tokenizer = byte_level()
    ids = ids_of(text)
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    pieces = pieces_of(tokenizer, ids)
    assert "".join(pieces) == whole
    if BROKEN not in whole:
        assert not any(BROKEN in piece for piece in pieces)


@given(some.lists(some.integers(0, 419), max_size=60))
def test_tokens_that_are_no_text_are_decoded_as_by_the_tokenizer(ids: list[int]) -> None:
    """Random bytes are mostly no UTF-8; what is told early is still the beginning of the whole."""
    tokenizer = byte_level()
    ids = [number % len(tokenizer) for number in ids]
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    pieces = pieces_of(tokenizer, ids)
    longest = max((len(run) for run in _silences(pieces)), default=0)
    assert longest <= MAX_PENDING
    assume(longest < MAX_PENDING)
    assert "".join(pieces) == whole


def _silences(pieces: list[str]) -> list[list[str]]:
    groups = itertools.groupby(pieces, key=bool)
    return [list(group) for has_text, group in groups if not has_text]


@pytest.mark.parametrize("text", ["the 漢字 end", "🦊 a 🦊🦊 stop.", "é", " the", "a the"])
def test_byte_fallback_joins_its_bytes(text: str) -> None:
    tokenizer = byte_fallback()
    vocab = tokenizer.get_vocab()
    ids: list[int] = []
    for at, word in enumerate(text.split(" ")):
        piece = ("▁" if at else "") + word
        if piece in vocab:
            ids.append(vocab[piece])
            continue
        ids += [vocab["▁"]] * bool(at)
        ids += [vocab[f"<0x{byte:02X}>"] for byte in word.encode()]
    pieces = pieces_of(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids) == text.removeprefix(" ")
    assert not any(BROKEN in piece for piece in pieces)


# Stop strings.


def report(stops: Sequence[str], pieces: Sequence[str]) -> tuple[str, str | None]:
    stream, out = StopStrings(stops), ""
    for piece in pieces:
        out += stream.add(piece)
        if stream.stop:
            return out, stream.stop
    return out + stream.end(), None


def by_hand(stops: Sequence[str], text: str) -> tuple[str, str | None]:
    """Letter by letter, with nothing held back."""
    for end in range(1, len(text) + 1):
        hits = [stop for stop in stops if text[:end].endswith(stop)]
        if hits:
            longest = max(hits, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(
    some.text("abc", max_size=30),
    some.lists(some.text("abc", min_size=1, max_size=5), min_size=1, max_size=4),
    blocks,
)
def test_stop_strings_end_a_text_wherever_it_is_cut(
    text: str, stops: list[str], sizes: list[int]
) -> None:
    pieces = ["".join(map(chr, block)) for block in in_blocks(list(map(ord, text)), sizes)]
    assert report(stops, pieces) == by_hand(stops, text)


# Choices.


def run(
    ids: Sequence[int],
    sizes: Sequence[int],
    stops: Sequence[str] = (),
    parser: AnswerParser | None = None,
    reason: Any = "length",
) -> tuple[Choice, list[Update]]:
    """A choice whose request says `ids` in blocks of these sizes; half of each block is drafted."""
    tokenizer = byte_level()
    request = request_of("a", [1], 99, stop_token_ids=[tokenizer.eos_token_id])
    text = Detokenizer(tokenizer, special_ids(tokenizer))
    choice = Choice(0, request, text, parser or AnswerParser(), list(stops))
    updates = []
    for block in in_blocks(ids, sizes):
        logprobs = [TokenLogprobs(token, -float(token), []) for token in block]
        updates.append(choice.add(Tokens(block, len(block) // 2, logprobs)))
    request.finish([list(ids)], reason)
    updates.append(choice.end())
    return choice, updates


def text_of(updates: list[Update]) -> str:
    return "".join(piece.text for update in updates for piece in update.pieces)


@given(texts, some.lists(texts.filter(bool), max_size=3), blocks)
def test_a_choice_is_the_same_at_every_split(text: str, stops: list[str], sizes: list[int]) -> None:
    ids = ids_of(text)
    choice, updates = run(ids, sizes, stops)
    alone, whole = run(ids, [1], stops)
    cut, is_stopped = by_hand(stops, byte_level().decode(ids, skip_special_tokens=True))
    assert text_of(updates) == text_of(whole) == cut
    assert choice.finish_reason == alone.finish_reason == ("stop" if is_stopped else "length")
    actual, expected = (
        [token for item in every for token in item.tokens] for every in (updates, whole)
    )
    assert [item.id for item in actual] == [item.id for item in expected]
    assert len(choice.ids) == len(actual)
    assert all(item.logprob and item.logprob.token == item.id for item in actual)
