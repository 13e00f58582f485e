"""Answers and chunks of both completions, as JSON has them, made of the same updates; and the texts
and bytes of single tokens.

OpenAI's fields are always there, null or not; `reasoning_content` and `metrics` are vLLM's, and
`token_origins` is ours.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from transformers.convert_slow_tokenizer import bytes_to_unicode

from ...tasks.detokenizer import BROKEN, decoder_of
from ..engine_thread import ServedRequest
from .choice import AnswerPiece, Choice, OutputToken, Update, joined
from .protocol import ChatRequest, CompletionRequest, GenerationRequest

Answer = dict[str, Any]
MODES = ("exact", "relaxed", "approximate", "draft")
"""The last of those of several choices is the answer's."""
FIELDS = {"content": "content", "reasoning": "reasoning_content"}
"""Fields of a message by the kind of their pieces."""
MIN_LOGPROB = -9999.0
"""What minus infinity is in JSON, which has no such number."""
CACHE_SIZE = 1 << 15
"""Tokens whose text is kept."""
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
ALPHABET = {letter: byte for byte, letter in bytes_to_unicode().items()}
"""The letters by which byte-level vocabularies write bytes."""


class AnswerForm:
    """How one endpoint tells updates: whole (`whole`), or as chunks of a stream.

    Args:
        request: as it was read.
        head: `id`, `created`, `model` and `system_fingerprint`.
        texts: of single tokens.

    Attributes:
        kinds: `object` of an answer and of a chunk.
    """

    kinds = ("", "")

    def __init__(self, request: GenerationRequest, head: Answer, texts: TokenTexts) -> None:
        self.request, self.texts = request, texts
        # OpenAI's chunks say `usage: null` where a last one will have it.
        self.head = {**head, "usage": None} if request.wants_usage else head
        self._has_logprobs = request.num_logprobs is not None
        self._wants_tokens = self._has_logprobs or bool(request.return_token_origins)

    def opening(self, choices: Sequence[Choice]) -> list[Answer]:
        """Returns the chunks before any token."""
        return [
            self._chunk(self._choice(choice, content, [], None))
            for choice in choices
            if (content := self._first(choice)) is not None
        ]

    def chunk(self, choice: Choice, update: Update) -> Answer | None:
        """Returns an update's chunk, unless it has nothing for the client."""
        pieces, reason = self._visible(update.pieces), choice.finish_reason
        if not (pieces or reason or (self._wants_tokens and update.tokens)):
            return None
        return self._chunk(
            self._choice(choice, self._content(choice, pieces), update.tokens, reason)
        )

    def closing(self, choices: Sequence[Choice]) -> Answer:
        """Returns the chunk with usage and metrics, behind all others."""
        figures = totals(choices, self.request.choices)
        return {**self.head, **figures, "object": self.kinds[1], "choices": []}

    def whole(self, choices: Sequence[Choice], updates: Sequence[Update]) -> Answer:
        """Returns the answer to a request that wants no stream; an update is all of its choice."""
        answers = []
        for choice, update in zip(choices, updates, strict=True):
            content = self._content(choice, joined(self._visible(update.pieces)), is_whole=True)
            reason = choice.finish_reason
            answers.append(self._choice(choice, content, update.tokens, reason, is_whole=True))
        figures = totals(choices, self.request.choices)
        return {**self.head, **figures, "object": self.kinds[0], "choices": answers}

    def _visible(self, pieces: list[AnswerPiece]) -> list[AnswerPiece]:
        """Returns the pieces that the client wants."""
        return pieces

    def _first(self, choice: Choice) -> Answer | None:
        """Returns what the first chunk of a choice has, if there is one before any token."""
        raise NotImplementedError

    def _content(
        self, choice: Choice, pieces: Sequence[AnswerPiece], is_whole: bool = False
    ) -> Answer:
        """Returns what a choice of a chunk, or of a whole answer, has of some pieces."""
        raise NotImplementedError

    def _logprobs(self, tokens: Sequence[OutputToken]) -> Answer:
        raise NotImplementedError

    def _chunk(self, choice: Answer) -> Answer:
        return {**self.head, "object": self.kinds[1], "choices": [choice]}

    def _choice(
        self,
        choice: Choice,
        content: Answer,
        tokens: Sequence[OutputToken],
        reason: str | None,
        is_whole: bool = False,
    ) -> Answer:
        has_logprobs = self._has_logprobs and (is_whole or bool(tokens))
        fields = {
            "index": choice.index,
            **content,
            "logprobs": self._logprobs(tokens) if has_logprobs else None,
            "finish_reason": reason,
        }
        if self.request.return_token_origins:
            fields["token_origins"] = self.texts.origins(tokens)
        return fields


class ChatForm(AnswerForm):
    """Answers `POST /v1/chat/completions`. Calls get their ids here, the same in all their
    pieces.
    """

    kinds = ("chat.completion", "chat.completion.chunk")
    request: ChatRequest

    def _first(self, choice: Choice) -> Answer | None:
        return {"delta": {"role": "assistant", "content": "", "refusal": None}}

    def _visible(self, pieces: list[AnswerPiece]) -> list[AnswerPiece]:
        """Returns pieces without reasoning, or a second call, where the request says so."""
        request = self.request
        if request.include_reasoning is False:
            pieces = [piece for piece in pieces if piece.kind != "reasoning"]
        if request.parallel_tool_calls is False:
            pieces = [piece for piece in pieces if not piece.call]
        return pieces

    def _content(
        self, choice: Choice, pieces: Sequence[AnswerPiece], is_whole: bool = False
    ) -> Answer:
        texts, calls = _texts(pieces), [piece for piece in pieces if piece.kind == "call"]
        if is_whole:
            content = None if calls else ""
            texts = {"role": "assistant", "content": content, "refusal": None, **texts}
            if calls:
                texts["tool_calls"] = [_call(piece.name or "", piece.text) for piece in calls]
            return {"message": texts}
        if calls:
            texts["tool_calls"] = [
                {"index": piece.call, "function": {"arguments": piece.text}}
                if piece.name is None
                else {"index": piece.call, **_call(piece.name, piece.text)}
                for piece in calls
            ]
        return {"delta": texts}

    def _logprobs(self, tokens: Sequence[OutputToken]) -> Answer:
        return self.texts.chat_logprobs(tokens)


class TextForm(AnswerForm):
    """Answers `POST /v1/completions`."""

    kinds = ("text_completion", "text_completion")
    request: CompletionRequest

    def _first(self, choice: Choice) -> Answer | None:
        return {"text": self._echoed(choice)} if self.request.echo else None

    def _content(
        self, choice: Choice, pieces: Sequence[AnswerPiece], is_whole: bool = False
    ) -> Answer:
        begin = self._echoed(choice) if is_whole and self.request.echo else ""
        return {"text": begin + "".join(piece.text for piece in pieces)}

    def _logprobs(self, tokens: Sequence[OutputToken]) -> Answer:
        return self.texts.text_logprobs(tokens)

    def _echoed(self, choice: Choice) -> str:
        """Returns the prompt of a choice."""
        prompt = self.request.prompts[choice.index // self.request.choices]
        return prompt if isinstance(prompt, str) else self.texts.decode(prompt)


def _texts(pieces: Sequence[AnswerPiece]) -> Answer:
    """Returns the fields of a message that are text."""
    fields: Answer = {}
    for piece in pieces:
        if (name := FIELDS.get(piece.kind)) is not None:
            fields[name] = fields.get(name, "") + piece.text
    return fields


def _call(name: str, arguments: str) -> Answer:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function}


def totals(choices: Sequence[Choice], each: int) -> Answer:
    """Returns `usage` and `metrics` of an answer, over its choices.

    Tokens behind a stop string are not counted; the prompt is counted once for all its choices.

    Args:
        each: choices of a prompt, which stand behind one another.
    """
    requests = [choice.request for choice in choices]
    prompts = sum(request.prompt_tokens for request in requests[::each])
    accepted = sum(
        min(choice.request.accepted_predictions, choice.num_drafted) for choice in choices
    )
    predicted = sum(request.predicted_tokens for request in requests)
    tokens = sum(choice.num_tokens for choice in choices)
    usage = {
        "prompt_tokens": prompts,
        "completion_tokens": tokens,
        "total_tokens": prompts + tokens,
        # Later choices of a prompt share the pages of the first, whatever came before the request.
        "prompt_tokens_details": {
            "cached_tokens": sum(request.cached_tokens for request in requests[::each])
        },
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": predicted - accepted,
        },
    }
    return {"usage": usage, "metrics": {"speculative_decoding": speculative_decoding(requests)}}


def speculative_decoding(requests: Sequence[ServedRequest]) -> Mapping[str, Any]:
    """Returns what drafting did, over all choices, under vLLM's names; means are of the sums.

    `acceptance_histogram` has at `j` the rounds that accepted `j` draft tokens.
    """
    histogram: Counter[int] = Counter()
    for request in requests:
        histogram.update(request.acceptance)
    steps, drafted = histogram.total(), sum(request.num_draft_tokens for request in requests)
    accepted = sum(request.num_accepted for request in requests)
    return {
        "mode": max((request.mode for request in requests), key=MODES.index, default="exact"),
        "num_spec_steps": steps,
        "num_draft_tokens": drafted,
        "num_accepted_draft_tokens": accepted,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "mean_acceptance_length": 1 + accepted / steps if steps else 1.0,
        "acceptance_histogram": [histogram[size] for size in range(max(histogram, default=-1) + 1)],
    }


class TokenTexts:
    """Holds texts and bytes of single tokens.

    Args:
        tokenizer: HF's.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.decode = tokenizer, decoder_of(tokenizer)
        # Twenty candidates a token are mostly the same few thousand.
        self.text = functools.lru_cache(CACHE_SIZE)(self._text)
        self.bytes = functools.lru_cache(CACHE_SIZE)(self._bytes)

    def _text(self, token: int, leads: bool = False) -> str:
        """As OpenAI has it: bytes that are no whole letters are written as `\\xf0`.

        Args:
            leads: it is the first of a text, where some tokenizers leave out its space.
        """
        known = self.bytes(token, leads)
        if known is None:
            return self._decoded(token, leads)
        try:
            return bytes(known).decode()
        except UnicodeDecodeError:
            signs = (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in known)
            return "".join(signs)

    def _bytes(self, token: int, leads: bool = False) -> list[int] | None:
        """UTF-8, or `None` where its vocabulary does not say which bytes it is."""
        text = self._decoded(token, leads)
        if BROKEN not in text:
            return list(text.encode())
        piece = self.tokenizer.convert_ids_to_tokens(token) or ""
        if (match := BYTE.fullmatch(piece)) is not None:
            return [int(match[1], 16)]
        if piece and all(letter in ALPHABET for letter in piece):
            return [ALPHABET[letter] for letter in piece]
        return None

    def _decoded(self, token: int, leads: bool) -> str:
        """With a replacement sign where its bytes are no whole letters."""
        if leads or self._pivot is None:
            return self.decode([token])
        pivot, before = self._pivot
        text = self.decode([pivot, token])
        return text[len(before) :] if text.startswith(before) else self.decode([token])

    @functools.cached_property
    def _pivot(self) -> tuple[int, str] | None:
        """A token of plain letters, behind which others are written as they are within a text."""
        for token in range(len(self.tokenizer)):
            if (text := self.decode([token])).isascii() and text.isalpha():
                return token, text
        return None

    def chat_logprobs(self, tokens: Sequence[OutputToken]) -> dict[str, Any]:
        """Returns log-probabilities of the tokens that have text."""
        content = [
            {
                **self._top(token.id, token.logprob.logprob, token.leads),
                "top_logprobs": [self._top(*entry, token.leads) for entry in token.logprob.top],
            }
            for token in tokens
            if token.logprob is not None and not token.is_end
        ]
        return {"content": content, "refusal": None}

    def text_logprobs(self, tokens: Sequence[OutputToken]) -> dict[str, Any]:
        """Returns log-probabilities of the tokens that have text, in the form of
        `/v1/completions`: the generated token is among the likeliest tokens, wherever it ranks.
        """
        tops = [
            (token, token.logprob)
            for token in tokens
            if token.logprob is not None and not token.is_end
        ]
        return {
            "tokens": [self.named(token.id, token.leads) for token, _ in tops],
            "token_logprobs": [max(logprob.logprob, MIN_LOGPROB) for _, logprob in tops],
            "top_logprobs": [
                {
                    self.named(token_id, token.leads): max(value, MIN_LOGPROB)
                    for token_id, value in (*logprob.top, (token.id, logprob.logprob))
                }
                for token, logprob in tops
            ],
            "text_offset": [token.offset for token, _ in tops],
        }

    def origins(self, tokens: Sequence[OutputToken]) -> list[dict[str, Any]]:
        """Returns which tokens were drafted, and which are the target's own."""
        return [
            {
                "id": token.id,
                "token": self.text(token.id, token.leads),
                "origin": "draft" if token.is_drafted else "target",
            }
            for token in tokens
        ]

    def _top(self, token: int, logprob: float, leads: bool) -> dict[str, Any]:
        return {
            "token": self.text(token, leads),
            "logprob": max(logprob, MIN_LOGPROB),
            "bytes": self.bytes(token, leads),
        }

    def named(self, token: int, leads: bool) -> str:
        """Returns a token of `/v1/completions`, where no field has its bytes."""
        text, known = self.text(token, leads), self.bytes(token, leads)
        return text if known is None or text.encode() == bytes(known) else f"bytes:{text}"
