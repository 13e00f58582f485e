"""Tokens to text that is final, while they come."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerFast

BROKEN = "\ufffd"
MAX_PENDING = 16
"""Tokens without any text after which what is there is told as it is: a letter has four bytes at
most, so these will never be one."""


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
        """Returns the text that this token made final, often its own, sometimes none."""
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
