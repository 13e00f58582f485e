"""What a text says: content, reasoning and calls of tools, while it comes in.

Models write calls in a form of their own. Where the tokenizer has a `response_template`,
transformers' parser reads it; the text of a forced `tool_choice` is JSON by its grammar.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from .protocol import ChatRequest, NamedTool

logger = logging.getLogger("sooner.serve")

CALLS = "tool_calls"
REASONING = ("reasoning_content", "thinking", "reasoning")
ARGUMENTS = "parameters"
PREFIX = 512
"""Last tokens of a prompt among which an assistant's turn begins."""


@dataclass(frozen=True)
class AnswerPiece:
    """Holds some more of an answer.

    Attributes:
        kind: what it is of.
        text: of content or reasoning; of a call some of its arguments, as JSON.
        call: number of the call.
        name: of the function, with the first piece of a call.
    """

    kind: Literal["content", "reasoning", "call"]
    text: str
    call: int = 0
    name: str | None = None


class AnswerParser(Protocol):
    """Reads an answer's text as it comes; the pieces do not depend on how it was cut.

    Attributes:
        keeps_special: it wants special tokens written out.
    """

    keeps_special: bool

    def add(self, text: str) -> list[AnswerPiece]: ...

    def end(self) -> list[AnswerPiece]: ...


class PlainAnswer:
    """All of it is content."""

    keeps_special = False

    def add(self, text: str) -> list[AnswerPiece]:
        return [AnswerPiece("content", text)] if text else []

    def end(self) -> list[AnswerPiece]:
        return []


class ForcedCall:
    """All of it is the arguments of one function."""

    keeps_special = False

    def __init__(self, name: str) -> None:
        self.name: str | None = name

    def add(self, text: str) -> list[AnswerPiece]:
        if not text:
            return []
        name, self.name = self.name, None
        return [AnswerPiece("call", text, 0, name)]

    def end(self) -> list[AnswerPiece]:
        return []


class ForcedCalls:
    """It is a list of `{"name": ..., "parameters": {...}}`, told when it is whole."""

    keeps_special = False

    def __init__(self) -> None:
        self.text = ""

    def add(self, text: str) -> list[AnswerPiece]:
        self.text += text
        return []

    def end(self) -> list[AnswerPiece]:
        try:
            calls = json.loads(self.text)
            return [
                AnswerPiece(
                    "call", json.dumps(call[ARGUMENTS], ensure_ascii=False), at, call["name"]
                )
                for at, call in enumerate(calls)
            ]
        except (ValueError, KeyError, TypeError):  # cut by a limit
            return PlainAnswer().add(self.text)


class TemplateAnswer:
    """Read by transformers' `ResponseParser`, letter by letter, so that no cut matters.

    A call that is not as its template has it is told as content: a model's slip is no error of the
    server.

    Args:
        template: loaded by `load_response_template`.
        prefix: the end of the prompt, where templates write the beginning of some answers.
        tools: as the chat template gets them, for the types of arguments.
    """

    keeps_special = True

    def __init__(self, template: Any, prefix: str, tools: list[Any] | None) -> None:
        from transformers.utils.chat_parsing import ResponseParser

        self._parser: Any = ResponseParser(template, prefix=prefix, tools=tools)
        self._untold = ""  # letters that may be a delimiter, or are of a region read as a whole
        self._spaces: dict[str, str | None] = {}  # of each kind: behind what was told of it
        self._calls = 0

    def add(self, text: str) -> list[AnswerPiece]:
        if self._parser is None:
            return PlainAnswer().add(text)
        pieces: list[AnswerPiece] = []
        for place, letter in enumerate(text):
            self._untold += letter
            if not self._read(pieces, lambda piece=letter: self._parser.feed(piece)):  # type: ignore[misc]
                return _joined(pieces + PlainAnswer().add(text[place + 1 :]))
        return _joined(pieces)

    def end(self) -> list[AnswerPiece]:
        pieces: list[AnswerPiece] = []
        if self._parser is not None:
            self._read(pieces, lambda: self._parser.finalize()[1])
        return _joined(pieces)

    def _read(self, pieces: list[AnswerPiece], step: Callable[[], list[dict[str, Any]]]) -> bool:
        """Take the parser a step further; whether the template still holds."""
        try:
            for event in step():
                pieces += self._pieces(event)
        except Exception as error:
            logger.info("an answer left its template and is told as it is: %s", error)
            self._parser = None
            pieces += PlainAnswer().add(self._untold)
            return False
        return True

    def _pieces(self, event: dict[str, Any]) -> list[AnswerPiece]:
        kind = _kind_of(event["field"])
        if event["type"] == "region_open" and kind != "call":
            self._untold = ""
        elif event["type"] == "region_chunk" and kind != "call":
            self._untold = self._untold[len(event["text"]) :]
            return [] if kind is None else self._stripped(kind, event["text"])
        elif event["type"] == "region_close" and kind == "call":
            value = event["value"]
            calls = [self._call(call) for call in (value if isinstance(value, list) else [value])]
            self._untold = ""
            return calls
        return []

    def _stripped(self, kind: Any, text: str) -> list[AnswerPiece]:
        """Without the space around it, as `parse_response` has it."""
        space = self._spaces.setdefault(kind, None)
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


def _kind_of(field: str) -> Literal["content", "reasoning", "call"] | None:
    if field == "content":
        return "content"
    if field == CALLS:
        return "call"
    return "reasoning" if field in REASONING else None


def _joined(pieces: list[AnswerPiece]) -> list[AnswerPiece]:
    """Returns neighbours of the same kind as one, but for calls."""
    joined: list[AnswerPiece] = []
    for piece in pieces:
        if joined and piece.kind == joined[-1].kind != "call":
            joined[-1] = replace(joined[-1], text=joined[-1].text + piece.text)
        else:
            joined.append(piece)
    return joined


class AnswerParsers:
    """Makes the parser of each answer.

    Args:
        tokenizer: HF's.
        template: a response template; by default the tokenizer's own, if it has one.
    """

    def __init__(self, tokenizer: Any, template: dict[str, Any] | None = None) -> None:
        self.tokenizer = tokenizer
        spec = template or getattr(tokenizer, "response_template", None)
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
            return ForcedCall(choice.function.name)
        if choice == "required":
            return ForcedCalls()
        template = self._without if tools is None else self._with_calls
        if template is None or request.structure is not None:
            return PlainAnswer()
        prefix = self.tokenizer.decode(
            [int(token) for token in prompt[-PREFIX:]], skip_special_tokens=False
        )
        return TemplateAnswer(template, prefix, tools)
