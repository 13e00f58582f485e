"""Answers and chunks as JSON has them, of the same updates; texts and bytes of single tokens.

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
from .protocol import ChatRequest

Answer = dict[str, Any]
CHUNK = "chat.completion.chunk"
MODES = ("exact", "relaxed", "approximate", "draft")
"""The last of those of several choices is the answer's."""
FIELDS = {"content": "content", "reasoning": "reasoning_content"}
"""Fields of a message by the kind of their pieces."""
MIN_LOGPROB = -9999.0
"""What minus infinity is in JSON, which has no such number."""
RUN = 3
"""Tokens in a row, at least, by which a part of a prediction is known in an answer."""
CACHE_SIZE = 1 << 15
"""Tokens whose text is kept."""
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
ALPHABET = {letter: byte for byte, letter in bytes_to_unicode().items()}
"""The letters by which byte-level vocabularies write bytes."""


class AnswerForm:
    """Writes updates: whole (`whole`), or as chunks of a stream. Calls get their ids here, the same
    in all their pieces.

    Args:
        request: as it was read.
        head: `id`, `created` and `model`.
        texts: of single tokens.
    """

    def __init__(self, request: ChatRequest, head: Answer, texts: TokenTexts) -> None:
        self.request, self.texts = request, texts
        # OpenAI's chunks say `usage: null` where a last one will have it.
        self.head = {**head, "usage": None} if request.wants_usage else head
        self._has_logprobs = request.num_logprobs is not None
        self._wants_tokens = self._has_logprobs or bool(request.return_token_origins)

    def opening(self, choices: Sequence[Choice]) -> list[Answer]:
        """Returns the chunks before any token."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return [self._chunk(self._choice(choice, {"delta": delta}, [], None)) for choice in choices]

    def chunk(self, choice: Choice, update: Update) -> Answer | None:
        """Returns an update's chunk, unless it has nothing for the client."""
        pieces, reason = self._visible(update.pieces), choice.finish_reason
        if not (pieces or reason or (self._wants_tokens and update.tokens)):
            return None
        delta: Answer = _texts(pieces)
        if calls := [piece for piece in pieces if piece.kind == "call"]:
            delta["tool_calls"] = [
                {"index": piece.call, "function": {"arguments": piece.text}}
                if piece.name is None
                else {"index": piece.call, **_call(piece.name, piece.text)}
                for piece in calls
            ]
        return self._chunk(self._choice(choice, {"delta": delta}, update.tokens, reason))

    def closing(self, choices: Sequence[Choice]) -> Answer:
        """Returns the chunk with usage and metrics, behind all others."""
        return {**self.head, **totals(choices), "object": CHUNK, "choices": []}

    def whole(self, choices: Sequence[Choice], updates: Sequence[Update]) -> Answer:
        """Returns the answer to a request that wants no stream; an update is all of its choice."""
        answers = []
        for choice, update in zip(choices, updates, strict=True):
            pieces = joined(self._visible(update.pieces))
            calls = [
                _call(piece.name or "", piece.text) for piece in pieces if piece.kind == "call"
            ]
            content = None if calls else ""
            message = {"role": "assistant", "content": content, "refusal": None, **_texts(pieces)}
            if calls:
                message["tool_calls"] = calls
            answers.append(
                self._choice(
                    choice, {"message": message}, update.tokens, choice.finish_reason, is_whole=True
                )
            )
        return {**self.head, **totals(choices), "object": "chat.completion", "choices": answers}

    def _visible(self, pieces: list[AnswerPiece]) -> list[AnswerPiece]:
        """Returns pieces without reasoning, or a second call, where the request says so."""
        request = self.request
        if request.include_reasoning is False:
            pieces = [piece for piece in pieces if piece.kind != "reasoning"]
        if request.parallel_tool_calls is False:
            pieces = [piece for piece in pieces if not piece.call]
        return pieces

    def _chunk(self, choice: Answer) -> Answer:
        return {**self.head, "object": CHUNK, "choices": [choice]}

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
            "logprobs": self.texts.logprobs(tokens) if has_logprobs else None,
            "finish_reason": reason,
        }
        if self.request.return_token_origins:
            fields["token_origins"] = self.texts.origins(tokens)
        return fields


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


def totals(choices: Sequence[Choice]) -> Answer:
    """Returns `usage` and `metrics` of an answer, over its choices.

    Tokens behind a stop string are not counted; the prompt is counted once for all its choices.
    """
    requests = [choice.request for choice in choices]
    prompt = requests[0].prompt_tokens
    predicted = sum(len(choice.prediction) for choice in choices)
    accepted = sum(num_appearing(choice.prediction, choice.ids) for choice in choices)
    tokens = sum(len(choice.ids) for choice in choices)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "total_tokens": prompt + tokens,
        # Later choices share the pages of the first, whatever came before the request.
        "prompt_tokens_details": {"cached_tokens": requests[0].cached_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": predicted - accepted,
        },
    }
    return {"usage": usage, "metrics": {"speculative_decoding": speculative_decoding(requests)}}


def num_appearing(prediction: Sequence[int], ids: Sequence[int]) -> int:
    """Returns how many tokens of a prediction appear in an answer, drafted or not: those of `RUN`
    in a row that both have."""
    size = min(RUN, len(prediction), len(ids))
    known = {tuple(ids[at : at + size]) for at in range(len(ids))}
    every = range(len(prediction) - size + 1)
    starts = [at for at in every if tuple(prediction[at : at + size]) in known]
    return min(len({at + n for at in starts for n in range(size)}), len(ids))


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

    def _text(self, token: int, is_first: bool = False) -> str:
        """As OpenAI has it: bytes that are no whole letters are written as `\\xf0`.

        Args:
            is_first: it is the first of a text, where some tokenizers leave out its space.
        """
        known = self.bytes(token, is_first)
        if known is None:
            return self._decoded(token, is_first)
        try:
            return bytes(known).decode()
        except UnicodeDecodeError:
            signs = (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in known)
            return "".join(signs)

    def _bytes(self, token: int, is_first: bool = False) -> list[int] | None:
        """UTF-8, or `None` where its vocabulary does not say which bytes it is."""
        text = self._decoded(token, is_first)
        if BROKEN not in text:
            return list(text.encode())
        piece = self.tokenizer.convert_ids_to_tokens(token) or ""
        if (match := BYTE.fullmatch(piece)) is not None:
            return [int(match[1], 16)]
        if piece and all(letter in ALPHABET for letter in piece):
            return [ALPHABET[letter] for letter in piece]
        return None

    def _decoded(self, token: int, is_first: bool) -> str:
        """With a replacement sign where its bytes are no whole letters."""
        if is_first or self._pivot is None:
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

    def logprobs(self, tokens: Sequence[OutputToken]) -> dict[str, Any]:
        """Returns log-probabilities of the tokens that have text."""
        content = [
            {
                **self._top(token.id, token.logprob.logprob, token.is_first),
                "top_logprobs": [self._top(*entry, token.is_first) for entry in token.logprob.top],
            }
            for token in tokens
            if token.logprob is not None and not token.is_end
        ]
        return {"content": content, "refusal": None}

    def origins(self, tokens: Sequence[OutputToken]) -> list[dict[str, Any]]:
        """Returns which tokens were drafted, and which are the target's own."""
        return [
            {
                "id": token.id,
                "token": self.text(token.id, token.is_first),
                "origin": "draft" if token.is_drafted else "target",
            }
            for token in tokens
        ]

    def _top(self, token: int, logprob: float, is_first: bool) -> dict[str, Any]:
        return {
            "token": self.text(token, is_first),
            "logprob": max(logprob, MIN_LOGPROB),
            "bytes": self.bytes(token, is_first),
        }
