"""Log probabilities and origins of tokens, in the forms of both completions."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from .choice import BROKEN, OutputToken

MIN_LOGPROB = -9999.0
"""What minus infinity is in JSON, which has no such number."""
CACHE_SIZE = 1 << 15
"""Tokens whose text is kept."""
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenTexts:
    """Holds texts and bytes of single tokens.

    Args:
        tokenizer: HF's.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
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
        alphabet = byte_alphabet()
        if piece and all(letter in alphabet for letter in piece):
            return [alphabet[letter] for letter in piece]
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

    def decode(self, ids: list[int]) -> str:
        """Returns text of several tokens, special ones written out."""
        text: str = self.tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

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


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """Returns the letters by which byte-level vocabularies write bytes (GPT-2): printable ones
    stand for themselves, the others for those from 256 on.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + number): byte for number, byte in enumerate(rest)
    }
