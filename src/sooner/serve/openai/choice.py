"""One choice of an answer: the tokens of its request become pieces of text, up to a stop string."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from transformers import PreTrainedTokenizerFast

from ...engine.request import TokenLogprobs
from ..engine_thread import ServedRequest, Tokens
from .tools import AnswerParser, AnswerPiece

FinishReason = Literal["stop", "length", "tool_calls"]

BROKEN = "\ufffd"
MAX_PENDING = 16
"""Tokens without any text after which what is there is told as it is: a letter has four bytes at
most, so these will never be one."""


@dataclass(frozen=True)
class OutputToken:
    """A token that counts.

    Attributes:
        offset: letters of text before it.
        logprob: if the request asked.
        is_end: an end token, which has no text.
        leads: it is the first token that has text.
    """

    id: int
    is_drafted: bool
    offset: int
    logprob: TokenLogprobs | None
    is_end: bool
    leads: bool = False


@dataclass(frozen=True)
class Update:
    """Holds what events, one or several behind one another, added to a choice."""

    pieces: list[AnswerPiece] = field(default_factory=list)
    tokens: list[OutputToken] = field(default_factory=list)

    def extend(self, other: Update) -> None:
        """Add what came behind it."""
        self.pieces.extend(other.pieces)
        self.tokens.extend(other.tokens)


class Choice:
    """Turns the tokens of a request into pieces of text.

    Tokens are taken one by one, so that nothing depends on how many a round committed. Those behind
    one that completes a stop string are dropped: neither told nor counted.

    Args:
        index: its number in the answer.
        request: the engine's, that makes it.
        text: makes text of its tokens.
        parser: reads it.
        stops: strings that end it.
        min_tokens: up to which no stop string ends it.
        includes_stop: what ends it, a string or a token, is part of its text.

    Attributes:
        is_over: nothing more will be told, though its request may still run.
        finish_reason: once it is over.
        has_ended: its request has.
        is_cancelled: the end of its request was asked for.
        num_tokens: tokens that count: up to the one that completed a stop string, an end token
            included.
        num_drafted: those of them that were drafted.
    """

    def __init__(
        self,
        index: int,
        request: ServedRequest,
        text: Detokenizer,
        parser: AnswerParser,
        stops: list[str],
        min_tokens: int = 0,
        includes_stop: bool = False,
    ) -> None:
        self.index, self.request = index, request
        self.has_ended = self.is_cancelled = False
        self._min_tokens, self._includes_stop = min_tokens, includes_stop
        self.finish_reason: FinishReason | None = None
        self._text, self._stops, self._parser = text, StopStrings(stops, includes_stop), parser
        self._letters = self.num_tokens = self.num_drafted = 0
        self._has_calls = False

    @property
    def is_over(self) -> bool:
        return self.finish_reason is not None

    @property
    def has_stops(self) -> bool:
        """Whether its text may end it, before its request knows."""
        return bool(self._stops.stops)

    def add(self, event: Tokens) -> Update:
        """Take a round's new tokens."""
        update = Update()
        for place, token in enumerate(event.ids):
            if self.is_over:
                break
            is_drafted = place < event.drafted
            logprob = None if event.logprobs is None else event.logprobs[place]
            is_end = token in self.request.stop_token_ids
            leads = not self.num_tokens
            entry = OutputToken(token, is_drafted, self._letters, logprob, is_end, leads)
            update.tokens.append(entry)
            self.num_tokens += 1
            self.num_drafted += is_drafted
            if not is_end or self._includes_stop:
                self._emit(update, self._text.add(token))
        return update

    def end(self) -> Update:
        """Tell what was held back, unless a stop string has ended it already."""
        update = Update()
        if self.is_over:
            return update
        self._emit(update, self._text.end())
        if not self.is_over:
            self._parse(update, self._stops.end())
            self._close(update, "length" if self.request.finish_reason == "length" else "stop")
        return update

    def _emit(self, update: Update, text: str) -> None:
        self._letters += len(text)
        self._parse(update, self._stops.add(text, self.num_tokens > self._min_tokens))
        if self._stops.stop is not None:
            self._close(update, "stop")

    def _parse(self, update: Update, text: str) -> None:
        self._tell(update, self._parser.add(text))

    def _tell(self, update: Update, pieces: list[AnswerPiece]) -> None:
        self._has_calls |= any(piece.kind == "call" for piece in pieces)
        update.pieces.extend(pieces)

    def _close(self, update: Update, reason: FinishReason) -> None:
        self._tell(update, self._parser.end())
        is_call = reason == "stop" and self._has_calls
        self.finish_reason = "tool_calls" if is_call else reason


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Returns tokens that `decode(..., skip_special_tokens=True)` leaves out."""
    added = tokenizer.added_tokens_decoder
    return frozenset(token_id for token_id, token in added.items() if token.special)


def decoder_of(tokenizer: Any) -> Callable[[list[int]], str]:
    """Returns `tokenizer.decode` of ids, special ones too, without cleaning up.

    A server decodes twice a token. Where transformers would only hand the ids to `tokenizers`, that
    is called itself, which takes a fifth of the time.
    """
    kind, known = type(tokenizer), PreTrainedTokenizerFast
    if isinstance(tokenizer, known) and (kind.decode, kind._decode) == (
        known.decode,
        known._decode,
    ):
        return partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=False)
    return partial(tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False)


class Detokenizer:
    """Turns tokens into text that is final.

    The text of a few tokens is not always the sum of theirs: tokenizers join several byte tokens to
    one letter, and write a token with or without the space before it. So a token's text is what it
    adds to that of the tokens before it, and bytes that are no letter yet wait for the next token.

    Args:
        tokenizer: HF's.
        skipped: tokens that are not written out, see `special_ids`; templates that parse an answer
            want all of them.
    """

    def __init__(self, tokenizer: Any, skipped: Collection[int] = ()) -> None:
        self.skipped, self._decode = skipped, decoder_of(tokenizer)
        self._ids: list[int] = []  # the window: some tokens whose text was told, then the new ones
        self._old = 0  # how many of them are old
        self._sent = 0  # letters of the window's text that were told

    def add(self, token: int) -> str:
        """Returns the text that became final by this token; often that of the token, sometimes
        none.
        """
        if token in self.skipped:
            return ""
        self._ids.append(token)
        text = self._decode(self._ids)
        is_stuck = len(self._ids) - self._old > MAX_PENDING
        final = text if is_stuck else text.rstrip(BROKEN)
        new = final[self._sent :]
        if len(final) == len(text) and (new or is_stuck):
            del self._ids[: self._old]
            self._old, self._sent = len(self._ids), len(self._decode(self._ids))
        else:
            self._sent += len(new)
        return new

    def end(self) -> str:
        """Returns what was held back: bytes that are no letter."""
        new = self._decode(self._ids)[self._sent :]
        self._ids, self._old, self._sent = [], 0, 0
        return new


class StopStrings:
    """Ends a text before the first stop string that it completes.

    Args:
        stops: strings that end it, none of them empty.
        includes_stop: the string that ends it is part of it.

    Attributes:
        stop: the one that ended it.
    """

    def __init__(self, stops: Iterable[str], includes_stop: bool = False) -> None:
        self.includes_stop = includes_stop
        # Of two that end at the same letter, the longer one began first.
        self.stops = sorted(set(stops), key=len, reverse=True)
        self.stop: str | None = None
        self._pending = ""

    def add(self, text: str, may_end: bool = True) -> str:
        """The part of the text so far that is certainly told; `stop` if nothing follows.

        Args:
            may_end: a string that is completed in `text` ends it.
        """
        if not self.stops or not text:
            return text
        start = len(self._pending)
        whole = self._pending + text
        hits = [(end, stop) for stop in self.stops if (end := _first_end(whole, stop, start))]
        if hits and may_end:
            end, self.stop = min(hits, key=lambda hit: hit[0])  # the longest of several
            self._pending = ""
            return whole[: end if self.includes_stop else end - len(self.stop)]
        size = stop_overlap(whole, self.stops)
        self._pending = whole[len(whole) - size :]
        return whole[: len(whole) - size]

    def end(self) -> str:
        """Returns what was held back and began no stop string after all."""
        pending, self._pending = self._pending, ""
        return pending


def stop_overlap(text: str, stops: Sequence[str]) -> int:
    """Returns length of the longest end of a text with which one of the stop strings may begin."""
    limit = min(max(map(len, stops), default=1) - 1, len(text))
    for size in range(limit, 0, -1):
        tail = text[len(text) - size :]
        if any(len(stop) > size and stop.startswith(tail) for stop in stops):
            return size
    return 0


def _first_end(whole: str, stop: str, start: int) -> int | None:
    """Returns where the first occurrence ends that ends behind `start`."""
    at = whole.find(stop, max(start - len(stop) + 1, 0))
    return None if at < 0 else at + len(stop)
