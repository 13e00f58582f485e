"""What a choice of an answer says: the tokens of its request become text, up to a stop string, and
the text content, reasoning and calls of tools, while it comes in.

Models write calls in a form of their own. Where the tokenizer has a `response_template`,
transformers' parser reads it; the text of a forced `tool_choice` is JSON by its grammar.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, Literal

from ...engine.request import TokenLogprobs
from ...tasks.detokenizer import Detokenizer
from ..engine_thread import ServedRequest, Tokens
from .protocol import ChatRequest, NamedTool

logger = logging.getLogger("sooner.serve")

FinishReason = Literal["stop", "length", "tool_calls"]

Kind = Literal["content", "reasoning", "call"]

CALLS = "tool_calls"
KINDS: dict[str, Kind] = {
    "content": "content", CALLS: "call", "reasoning_content": "reasoning",
    "thinking": "reasoning", "reasoning": "reasoning",
}  # fmt: skip
"""What a field of a response template is, by its name."""
ARGUMENTS = "parameters"
PREFIX = 512
"""Last tokens of a prompt among which an assistant's turn begins."""


@dataclass(frozen=True)
class OutputToken:
    """A token that counts.

    Attributes:
        logprob: if the request asked.
        is_end: an end token, which has no text.
        is_first: it is the first token that has text.
    """

    id: int
    is_drafted: bool
    logprob: TokenLogprobs | None
    is_end: bool
    is_first: bool = False


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
        prediction: ids of OpenAI's `prediction`.

    Attributes:
        is_finished: nothing more will be told, though its request may still run.
        finish_reason: once it is over.
        has_ended: its request has.
        ids: of tokens that count: up to the end of a stop string, an end token included.
    """

    def __init__(
        self,
        index: int,
        request: ServedRequest,
        text: Detokenizer,
        parser: AnswerParser,
        stops: list[str],
        min_tokens: int = 0,
        prediction: Sequence[int] = (),
    ) -> None:
        self.index, self.request, self.prediction = index, request, prediction
        self.has_ended = self._has_calls = False
        self._min_tokens = min_tokens
        self.finish_reason: FinishReason | None = None
        self._text, self._stops, self._parser = text, StopStrings(stops), parser
        self.ids: list[int] = []

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def has_stops(self) -> bool:
        """Whether its text may end it, before its request knows."""
        return bool(self._stops.stops)

    def add(self, event: Tokens) -> Update:
        """Take a round's new tokens."""
        update = Update()
        for place, token in enumerate(event.ids):
            if self.is_finished:
                break
            is_drafted = place < event.drafted
            logprob = None if event.logprobs is None else event.logprobs[place]
            is_end = token in self.request.stop_token_ids
            entry = OutputToken(token, is_drafted, logprob, is_end, is_first=not self.ids)
            update.tokens.append(entry)
            self.ids.append(token)
            if not is_end:
                self._emit(update, self._text.add(token))
        return update

    def end(self) -> Update:
        """Tell what was held back, unless a stop string has ended it already."""
        update = Update()
        if self.is_finished:
            return update
        self._emit(update, self._text.end())
        if not self.is_finished:
            self._add_pieces(update, self._parser.add(self._stops.end()))
            self._close(update, "length" if self.request.finish_reason == "length" else "stop")
        return update

    def _emit(self, update: Update, text: str) -> None:
        text = self._stops.add(text, len(self.ids) > self._min_tokens)
        self._add_pieces(update, self._parser.add(text))
        if self._stops.stop is not None:
            self._close(update, "stop")

    def _add_pieces(self, update: Update, pieces: list[AnswerPiece]) -> None:
        self._has_calls |= any(piece.kind == "call" for piece in pieces)
        update.pieces.extend(pieces)

    def _close(self, update: Update, reason: FinishReason) -> None:
        self._add_pieces(update, self._parser.end())
        is_call = reason == "stop" and self._has_calls
        self.finish_reason = "tool_calls" if is_call else reason


class StopStrings:
    """Ends a text before the first stop string that it completes.

    Args:
        stops: strings that end it, none of them empty.

    Attributes:
        stop: the one that ended it.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        # The longest first: of two that end at the same letter, it began first.
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
            return whole[: end - len(self.stop)]
        cut = max(len(whole) - (len(self.stops[0]) - 1), 0)  # a stop string may begin behind it
        self._pending = whole[cut:]
        return whole[:cut]

    def end(self) -> str:
        """Returns what was held back and began no stop string after all."""
        pending, self._pending = self._pending, ""
        return pending


def _first_end(whole: str, stop: str, start: int) -> int | None:
    """Returns where the first occurrence ends that ends behind `start`."""
    at = whole.find(stop, max(start - len(stop) + 1, 0))
    return None if at < 0 else at + len(stop)


@dataclass(frozen=True)
class AnswerPiece:
    """Holds some more of an answer.

    Attributes:
        kind: what it is of.
        text: of content or reasoning; of a call some of its arguments, as JSON.
        call: number of the call.
        name: of the function, with the first piece of a call.
    """

    kind: Kind
    text: str
    call: int = 0
    name: str | None = None


class AnswerParser:
    """Reads an answer's text as it comes; the pieces do not depend on how it was cut. Here all of
    it is content, or the arguments of one function.

    Args:
        function: name of that.

    Attributes:
        keeps_special: it wants special tokens written out.
    """

    needs_special_tokens = False

    def __init__(self, function: str | None = None) -> None:
        self.kind: Kind = "content" if function is None else "call"
        self.name = function

    def add(self, text: str) -> list[AnswerPiece]:
        """Returns the pieces that are final by some more of the text."""
        if not text:
            return []
        name, self.name = self.name, None
        return [AnswerPiece(self.kind, text, name=name)]

    def end(self) -> list[AnswerPiece]:
        """Returns the pieces that were held back."""
        return []


class ForcedCalls(AnswerParser):
    """It is a list of `{"name": ..., "parameters": {...}}`, told when it is whole."""

    text = ""

    def add(self, text: str) -> list[AnswerPiece]:
        self.text += text
        return []

    def end(self) -> list[AnswerPiece]:
        try:
            calls = [
                (json.dumps(call[ARGUMENTS], ensure_ascii=False), call["name"])
                for call in json.loads(self.text)
            ]
            return [AnswerPiece("call", text, at, name) for at, (text, name) in enumerate(calls)]
        except (ValueError, KeyError, TypeError):  # cut by a limit
            return super().add(self.text)


class TemplateAnswer(AnswerParser):
    """Read by transformers' `ResponseParser`, letter by letter, so that no cut matters.

    A call that is not as its template has it is told as content: the server made no error.

    Args:
        template: loaded by `load_response_template`.
        prefix: the end of the prompt, where templates write the beginning of some answers.
        tools: as the chat template gets them, for the types of arguments.
    """

    needs_special_tokens = True

    def __init__(self, template: Any, prefix: str, tools: list[Any] | None) -> None:
        from transformers.utils.chat_parsing import ResponseParser

        super().__init__()
        self._parser: Any = ResponseParser(template, prefix=prefix, tools=tools)
        self._pending_text = ""  # may be a delimiter, or is of a region that is read whole
        self._spaces: dict[str, str] = {}  # of each kind: behind what was told of it
        self._calls = 0

    def add(self, text: str) -> list[AnswerPiece]:
        if self._parser is None:
            return super().add(text)
        pieces: list[AnswerPiece] = []
        for place, letter in enumerate(text):
            self._pending_text += letter
            if not self._read(pieces, partial(self._parser.feed, letter)):
                return joined(pieces + super().add(text[place + 1 :]))
        return joined(pieces)

    def end(self) -> list[AnswerPiece]:
        pieces: list[AnswerPiece] = []
        if self._parser is not None:
            self._read(pieces, lambda: self._parser.finalize()[1])
        return joined(pieces)

    def _read(self, pieces: list[AnswerPiece], step: Callable[[], list[dict[str, Any]]]) -> bool:
        """Take the parser a step further; whether the template still holds."""
        try:
            for event in step():
                pieces += self._pieces(event)
        except Exception as error:
            logger.info("an answer left its template and is told as it is: %s", error)
            self._parser = None
            pieces += super().add(self._pending_text)
            return False
        return True

    def _pieces(self, event: dict[str, Any]) -> list[AnswerPiece]:
        kind = KINDS.get(event["field"])
        if event["type"] == "region_open" and kind != "call":
            self._pending_text = ""
        elif event["type"] == "region_chunk" and kind != "call":
            self._pending_text = self._pending_text[len(event["text"]) :]
            return [] if kind is None else self._stripped(kind, event["text"])
        elif event["type"] == "region_close" and kind == "call":
            value = event["value"]
            calls = [self._call(call) for call in (value if isinstance(value, list) else [value])]
            self._pending_text = ""
            return calls
        return []

    def _stripped(self, kind: Kind, text: str) -> list[AnswerPiece]:
        """Without the space around it, as `parse_response` has it."""
        space = self._spaces.get(kind)
        text = text.lstrip() if space is None else space + text
        if not text:
            return []
        content = text.rstrip()
        self._spaces[kind] = text[len(content) :]
        return [AnswerPiece(kind, content)] if content else []

    def _call(self, call: dict[str, Any]) -> AnswerPiece:
        """Raises `KeyError` or `TypeError` if it is none."""
        function = call["function"]
        name, arguments = function["name"], function.get("arguments", {})
        if not isinstance(name, str):
            raise TypeError(f"the name of a call is a {type(name).__name__}")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        self._calls += 1
        return AnswerPiece("call", arguments, self._calls - 1, name)


def joined(pieces: list[AnswerPiece]) -> list[AnswerPiece]:
    """Returns neighbours of the same text, or of the same call, as one."""
    result: list[AnswerPiece] = []
    for _, group in groupby(pieces, lambda piece: (piece.kind, piece.call)):
        first, *rest = group
        result.append(replace(first, text=first.text + "".join(piece.text for piece in rest)))
    return result


class AnswerParsers:
    """Makes the parser of each answer.

    Args:
        tokenizer: HF's; its `response_template`, if it has one, says how.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        spec = getattr(tokenizer, "response_template", None)
        self._with_calls = self._without = None
        if spec is not None:
            from transformers.utils.chat_parsing.response_templates import load_response_template

            fields = {name: field for name, field in spec["fields"].items() if name != CALLS}
            self._with_calls = load_response_template(spec)
            self._without = load_response_template({**spec, "fields": fields}) if fields else None

    def of(self, request: ChatRequest, prompt: Sequence[int]) -> AnswerParser:
        """Returns the parser of one choice.

        Args:
            prompt: its token ids; the last of them are read.
        """
        choice, tools = request.tool_choice, request.template_tools
        if isinstance(choice, NamedTool):
            return AnswerParser(choice.function.name)
        if choice == "required":
            return ForcedCalls()
        template = self._without if tools is None else self._with_calls
        if template is None or request.schema_of_answer is not None:
            return AnswerParser()
        prefix = self.tokenizer.decode(
            [int(token) for token in prompt[-PREFIX:]], skip_special_tokens=False
        )
        return TemplateAnswer(template, prefix, tools)
