"""One generation over one clip, with its text streamed in pieces, marked drafted or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any

from ..generation import Generation, generate
from ..methods import Method
from .clip import Clip
from .loading import ModelPair
from .prefill import Prefill, chunk_of
from .settings import CaptionSettings

OnText = Callable[[str, bool], None]

"""Told `(piece of text, whether it was drafted)`."""

TAIL_TOKENS = 4

"""Last tokens whose text may still change: tokenizers join punctuation and UTF-8 bytes."""

INTERVAL = 0.05

"""Seconds between two decodings, so that streaming costs next to nothing at any speed."""


class TextStream:
    """Turns committed tokens into text.

    The text of a prefix is not always a prefix of the text: detokenizers join punctuation to words
    and several byte tokens to one letter. So the newest tokens are held back, and only what the
    text with and without them has in common is told.

    Args:
        tokenizer: the target's.
        on_text: receives the pieces; their sum is `text` after `close`.
    """

    def __init__(self, tokenizer: Any, on_text: OnText, interval: float = INTERVAL) -> None:
        self.tokenizer = tokenizer
        self.on_text = on_text
        self.interval = interval
        self.tokens: list[int] = []
        self.drafted: list[bool] = []
        self.sent = ""
        self._next = 0.0
        self._sent_tokens = 0  # tokens whose text was told

    def add(self, tokens: list[int], drafted: int) -> None:
        """Take a round's new tokens, of which the first `drafted` come from the draft."""
        self.tokens += tokens
        self.drafted += [index < drafted for index in range(len(tokens))]
        if time.perf_counter() >= self._next:
            texts = self.decode(self.tokens), self.decode(self.tokens[:-TAIL_TOKENS])
            shared = takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
            self._report("".join(letter for letter, _ in shared))
            self._next = time.perf_counter() + self.interval

    def close(self) -> str:
        """Emit the text that was held back; returns the whole text."""
        text = self.decode(self.tokens)
        if not text.startswith(self.sent):  # a detokenizer that looks back farther than assumed
            self.on_text("\n", False)
            self.sent = ""
        self._report(text)
        return text

    def decode(self, tokens: list[int]) -> str:
        """Returns the text of `tokens` without special tokens and surrounding space."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True)).strip()

    def _report(self, text: str) -> None:
        if len(text) <= len(self.sent) or not text.startswith(self.sent):
            return
        for piece, drafted in self._pieces(text):
            self.on_text(piece, drafted)
        self.sent = text

    def _pieces(self, text: str) -> list[tuple[str, bool]]:
        """Returns what of `text` is new, cut where the origin changes, without empty pieces."""
        pieces: list[tuple[str, bool]] = []
        start, anchor = len(self.sent), max(self._sent_tokens - TAIL_TOKENS, 0)
        before = len(self.decode(self.tokens[anchor : self._sent_tokens]))
        while start < len(text) and self._sent_tokens < len(self.tokens):
            drafted = self.drafted[self._sent_tokens]
            self._sent_tokens += 1
            # A window is enough to measure a token; decoding from the start would be quadratic.
            length = len(self.decode(self.tokens[anchor : self._sent_tokens]))
            end = min(start + max(length - before, 0), len(text))
            pieces.append((text[start:end], drafted))
            before, start = length, end
        pieces.append((text[start:], False))
        parts = groupby(filter(itemgetter(0), pieces), key=itemgetter(1))
        return [("".join(map(itemgetter(0), part)), drafted) for drafted, part in parts]


OnCount = Callable[[int, int], None]

"""Told `(new tokens so far, at most)` after every round."""


def run(
    pair: ModelPair,
    clip: Clip,
    settings: CaptionSettings,
    method: Method,
    on_text: OnText = lambda piece, drafted: None,
    on_count: OnCount = lambda done, total: None,
    prefill: Prefill | None = None,
) -> tuple[Generation, str]:
    """Generate once; returns what was generated and its text.

    The text is made piece by piece even if nobody watches, so that two runs that are compared
    carry the same load.

    Args:
        prefill: from `build_prefill`; the model's own by default, whatever the settings say.
    """
    stream = TextStream(pair.target.tokenizer, on_text)

    def report(row: int, tokens: list[int], drafted: int) -> None:
        stream.add(tokens, drafted)
        on_count(len(stream.tokens), clip.max_new_tokens)

    made = generate(
        pair.target.model,
        clip.inputs,
        method,
        prefill=prefill,
        seed=None if settings.is_greedy else settings.seed,
        on_tokens=report,
        max_new_tokens=clip.max_new_tokens,
        prefill_chunk_size=chunk_of(settings) if prefill is not None else settings.prefill_chunk,
        **settings.generation_options(),
    )
    return made, stream.close()
