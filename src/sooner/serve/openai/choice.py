"""One choice of an answer: its job, whose tokens become pieces of text, up to a stop string."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..jobs import Finished, GenerationJob, JobUsage, Tokens
from .answers import FinishReason
from .text import Detokenizer, StopStrings
from .tools import AnswerParser, AnswerPiece

if TYPE_CHECKING:
    from ...engine.request import TokenLogprobs


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

    def text(self, *kinds: str) -> str:
        """Returns the text of all pieces, or of those of some kinds."""
        return "".join(piece.text for piece in self.pieces if not kinds or piece.kind in kinds)

    def extend(self, other: Update) -> None:
        """Add what came behind it."""
        self.pieces.extend(other.pieces)
        self.tokens.extend(other.tokens)


class Choice:
    """Turns a job's events into pieces of text.

    Tokens are taken one by one, so that nothing depends on how many a round committed. Those behind
    one that completes a stop string are dropped: neither told nor counted.

    Args:
        index: its number in the answer.
        job: that makes it.
        text: makes text of its tokens.
        parser: reads it.
        stops: strings that end it.
        min_tokens: up to which no stop string ends it.
        includes_stop: what ends it, a string or a token, is part of its text.

    Attributes:
        is_over: nothing more will be told, though its job may still run.
        finish_reason: once it is over.
        finished: how its job ended, once it has.
        is_cancelled: the end of its job was asked for.
        num_tokens: tokens that count: up to the one that completed a stop string, an end token
            included.
        num_drafted: those of them that were drafted.
    """

    def __init__(
        self,
        index: int,
        job: GenerationJob,
        text: Detokenizer,
        parser: AnswerParser,
        stops: list[str],
        min_tokens: int = 0,
        includes_stop: bool = False,
    ) -> None:
        self.index, self.job = index, job
        self.finished: Finished | None = None
        self.is_cancelled = False
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
        """Whether its text may end it, before its job knows."""
        return bool(self._stops.stops)

    def add(self, event: Tokens) -> Update:
        """Take a round's new tokens."""
        update = Update()
        for place, token in enumerate(event.ids):
            if self.is_over:
                break
            is_drafted = place < event.drafted
            logprob = None if event.logprobs is None else event.logprobs[place]
            is_end = token in self.job.stop_token_ids
            leads = not self.num_tokens
            entry = OutputToken(token, is_drafted, self._letters, logprob, is_end, leads)
            update.tokens.append(entry)
            self.num_tokens += 1
            self.num_drafted += is_drafted
            if not is_end or self._includes_stop:
                self._emit(update, self._text.add(token))
        return update

    def end(self, event: Finished) -> Update:
        """Tell what was held back, unless a stop string has ended it already."""
        update = Update()
        if self.is_over:
            return update
        self._emit(update, self._text.end())
        if not self.is_over:
            self._parse(update, self._stops.end())
            self._close(update, "length" if event.reason == "length" else "stop")
        return update

    @property
    def usage(self) -> JobUsage:
        """Returns what its job took, as the engine counted."""
        finished = self.finished
        return JobUsage(self.job.prompt_tokens) if finished is None else finished.usage

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
