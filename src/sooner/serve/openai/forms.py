"""Answers and chunks of both completions, made of the same updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from .answers import (
    Answered,
    AnsweredCall,
    AnswerMessage,
    AnswerMetrics,
    CalledFunction,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    TextChoice,
    TextCompletion,
    TokenUsage,
)
from .choice import Choice, OutputToken, Update
from .logprobs import TokenTexts
from .protocol import ChatRequest, CompletionRequest, GenerationRequest
from .tools import AnswerPiece


class AnswerForm:
    """How one endpoint tells updates: whole (`whole`), or as chunks of a stream.

    Args:
        request: as it was read.
        head: `id`, `created` and `model`.
        texts: of single tokens.
    """

    def __init__(self, request: GenerationRequest, head: dict[str, Any], texts: TokenTexts) -> None:
        self.request, self.texts = request, texts
        # OpenAI's chunks say `usage: null` where a last one will have it.
        self.head = {**head, "usage": None} if request.wants_usage else head

    @property
    def has_logprobs(self) -> bool:
        return self.request.num_logprobs is not None

    def extras(self, tokens: Sequence[OutputToken]) -> dict[str, Any]:
        """Returns fields that are there if they were asked for."""
        if not self.request.return_token_origins:
            return {}
        return {"token_origins": self.texts.origins(tokens)}

    @property
    def wants_tokens(self) -> bool:
        """Whether more is told of tokens than their text."""
        return self.has_logprobs or bool(self.request.return_token_origins)

    def is_silent(self, update: Update) -> bool:
        """Returns whether an update has nothing that this client wants."""
        return not update.pieces and not (self.wants_tokens and update.tokens)

    def bare_text(self, update: Update) -> str | None:
        """Returns what an update adds, if that is text of the answer and nothing else."""
        pieces = update.pieces
        if not pieces or self.wants_tokens or any(item.kind != "content" for item in pieces):
            return None
        return update.text()

    def opening(self, choices: Sequence[Choice]) -> list[Answered]:
        """Returns the chunks before any token."""
        raise NotImplementedError

    def chunk(self, choice: Choice, update: Update, is_last: bool) -> Answered | None:
        """Returns an update's chunk, unless it has nothing for the client."""
        raise NotImplementedError

    def closing(self, usage: TokenUsage, metrics: AnswerMetrics) -> Answered:
        """Returns the chunk with the usage, behind all others."""
        raise NotImplementedError

    def whole(
        self,
        choices: Sequence[tuple[Choice, Update]],
        usage: TokenUsage,
        metrics: AnswerMetrics,
    ) -> Answered:
        """Returns the answer to a request that wants no stream."""
        raise NotImplementedError


class ChatForm(AnswerForm):
    """Answers `POST /v1/chat/completions`. Calls get their ids here, the same in all their
    pieces.
    """

    request: ChatRequest

    def opening(self, choices: Sequence[Choice]) -> list[Answered]:
        first = AnswerMessage(role="assistant", content=self.request.echoed, refusal=None)
        return [self._chunk(choice, first, [], None) for choice in choices]

    def chunk(self, choice: Choice, update: Update, is_last: bool) -> Answered | None:
        if self.is_silent(update) and not is_last:
            return None
        reason = choice.finish_reason if is_last else None
        return self._chunk(choice, self._delta(self._visible(update)), update.tokens, reason)

    def is_silent(self, update: Update) -> bool:
        return super().is_silent(replace(update, pieces=self._visible(update)))

    def _visible(self, update: Update) -> list[AnswerPiece]:
        """Returns pieces that the client wants: no reasoning, or no second call, where it
        says so.
        """
        request = self.request
        return [
            piece
            for piece in update.pieces
            if not (piece.kind == "reasoning" and request.include_reasoning is False)
            and not (piece.call > 0 and request.parallel_tool_calls is False)
        ]

    def closing(self, usage: TokenUsage, metrics: AnswerMetrics) -> Answered:
        head = {**self.head, "usage": usage, "metrics": metrics}
        return ChatCompletionChunk(**head, object="chat.completion.chunk", choices=[])

    def whole(
        self,
        choices: Sequence[tuple[Choice, Update]],
        usage: TokenUsage,
        metrics: AnswerMetrics,
    ) -> Answered:
        answers = [
            ChatChoice(
                index=choice.index,
                message=self._message(all_of),
                logprobs=self._logprobs(all_of.tokens),
                finish_reason=choice.finish_reason or "stop",
                **self.extras(all_of.tokens),
            )
            for choice, all_of in choices
        ]
        head = {**self.head, "usage": usage, "metrics": metrics}
        return ChatCompletion(**head, object="chat.completion", choices=answers)

    def _chunk(
        self,
        choice: Choice,
        delta: AnswerMessage,
        tokens: Sequence[OutputToken],
        reason: Any,
    ) -> ChatCompletionChunk:
        choice_delta = ChatDelta(
            index=choice.index, delta=delta, logprobs=self._logprobs(tokens) if tokens else None,
            finish_reason=reason, **self.extras(tokens),
        )  # fmt: skip
        return ChatCompletionChunk(
            **self.head, object="chat.completion.chunk", choices=[choice_delta]
        )

    def _logprobs(self, tokens: Sequence[OutputToken]) -> Any:
        return self.texts.chat_logprobs(tokens) if self.has_logprobs else None

    def _delta(self, pieces: Sequence[AnswerPiece]) -> AnswerMessage:
        fields: dict[str, Any] = {}
        for kind, name in (("content", "content"), ("reasoning", "reasoning_content")):
            if any(piece.kind == kind for piece in pieces):
                fields[name] = "".join(piece.text for piece in pieces if piece.kind == kind)
        if calls := [piece for piece in pieces if piece.kind == "call"]:
            fields["tool_calls"] = [self._call(piece) for piece in calls]
        return AnswerMessage(**fields)

    def _call(self, piece: AnswerPiece) -> AnsweredCall:
        function = CalledFunction(arguments=piece.text)
        if piece.name is None:
            return AnsweredCall(index=piece.call, function=function)
        function = CalledFunction(name=piece.name, arguments=piece.text)
        return AnsweredCall(
            index=piece.call, id=f"call_{uuid4().hex[:24]}", type="function", function=function
        )

    def _message(self, all_of: Update) -> AnswerMessage:
        names: dict[int, str] = {}
        arguments: dict[int, str] = defaultdict(str)
        pieces = self._visible(all_of)
        for piece in pieces:
            if piece.kind == "call":
                arguments[piece.call] += piece.text
                names.setdefault(piece.call, piece.name or "")
        content, reasoning = (
            "".join(piece.text for piece in pieces if piece.kind == kind)
            for kind in ("content", "reasoning")
        )
        content = self.request.echoed + content
        fields: dict[str, Any] = {"content": content if content or not names else None}
        fields["refusal"] = None
        if reasoning:
            fields["reasoning_content"] = reasoning
        if names:
            fields["tool_calls"] = [
                AnsweredCall(
                    id=f"call_{uuid4().hex[:24]}", type="function",
                    function=CalledFunction(name=name, arguments=arguments[number]),
                )
                for number, name in names.items()
            ]  # fmt: skip
        return AnswerMessage(role="assistant", **fields)


class TextForm(AnswerForm):
    """Answers `POST /v1/completions`."""

    request: CompletionRequest

    def opening(self, choices: Sequence[Choice]) -> list[Answered]:
        if not self.request.echo:
            return []
        answers = [self._choice(choice, self._echoed(choice), [], None) for choice in choices]
        return [
            TextCompletion(**self.head, object="text_completion", choices=[answer])
            for answer in answers
        ]

    def chunk(self, choice: Choice, update: Update, is_last: bool) -> Answered | None:
        if self.is_silent(update) and not is_last:
            return None
        text = update.text()
        reason = choice.finish_reason if is_last else None
        answer = self._choice(choice, text, update.tokens, reason)
        if not update.tokens:
            answer.logprobs = None
        return TextCompletion(**self.head, object="text_completion", choices=[answer])

    def closing(self, usage: TokenUsage, metrics: AnswerMetrics) -> Answered:
        head = {**self.head, "usage": usage, "metrics": metrics}
        return TextCompletion(**head, object="text_completion", choices=[])

    def whole(
        self,
        choices: Sequence[tuple[Choice, Update]],
        usage: TokenUsage,
        metrics: AnswerMetrics,
    ) -> Answered:
        answers = [
            self._choice(
                choice,
                self._echoed(choice) + all_of.text("content"),
                all_of.tokens,
                choice.finish_reason,
            )
            for choice, all_of in choices
        ]
        head = {**self.head, "usage": usage, "metrics": metrics}
        return TextCompletion(**head, object="text_completion", choices=answers)

    def _echoed(self, choice: Choice) -> str:
        """Returns the prompt, if the answer is to begin with it."""
        if not self.request.echo:
            return ""
        prompt = self.request.prompts[choice.index // self.request.choices]
        return prompt if isinstance(prompt, str) else self.texts.decode(prompt)

    def _choice(
        self, choice: Choice, text: str, tokens: Sequence[OutputToken], reason: Any
    ) -> TextChoice:
        logprobs = self.texts.text_logprobs(tokens) if self.has_logprobs else None
        return TextChoice(
            index=choice.index, text=text, logprobs=logprobs, finish_reason=reason,
            **self.extras(tokens),
        )  # fmt: skip
