"""One generation over one prompt, with its text streamed in pieces, marked drafted or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Any

from ..generation import Generation, generate
from ..methods import Method
from ..models import adapt
from ..models.hooks import ForwardHooks
from .clip import Prompt
from .detokenizer import Detokenizer, special_ids
from .loading import ModelPair
from .prefill import Prefill
from .settings import CaptionSettings

OnText = Callable[[str, bool], None]
"""Called with `(piece of text, whether it was drafted)`."""

OnCount = Callable[[int, int], None]
"""Called with `(new tokens so far, at most)` after every round."""


class TextStream:
    """Turns committed tokens into pieces of text, without the space around it all.

    Args:
        tokenizer: the target's.
        on_text: receives the pieces, which add up to `text` once the stream is closed.
    """

    interval = 0.05
    """Seconds between two reports, so that a terminal costs next to nothing at any speed."""

    def __init__(self, tokenizer: Any, on_text: OnText) -> None:
        self.on_text = on_text
        self.text, self.tokens = "", 0
        self._detokenizer = Detokenizer(tokenizer, special_ids(tokenizer))
        self._pieces: list[tuple[str, bool]] = []
        self._spaces = ""  # they are part of the text once another piece follows
        self._next = 0.0

    def add(self, tokens: list[int], drafted: int) -> None:
        """Take a round's new tokens, of which the first `drafted` come from the draft."""
        self.tokens += len(tokens)
        for index, token in enumerate(tokens):
            self._pieces.append((self._detokenizer.add(token), index < drafted))
        if time.perf_counter() >= self._next:
            self._report()
            self._next = time.perf_counter() + self.interval

    def close(self) -> str:
        """Report the text that was held back; returns the whole text."""
        self._pieces.append((self._detokenizer.end(), False))
        self._report()
        return self.text

    def _report(self) -> None:
        for is_drafted, group in groupby(self._pieces, key=itemgetter(1)):
            piece = self._spaces + "".join(text for text, _ in group)
            piece = piece if self.text else piece.lstrip()
            whole = piece.rstrip()
            self._spaces = piece[len(whole) :]
            if whole:
                self.text += whole
                self.on_text(whole, is_drafted)
        self._pieces.clear()


def run(
    pair: ModelPair, prompt: Prompt, settings: CaptionSettings, method: Method,
    on_text: OnText = lambda piece, drafted: None, on_count: OnCount = lambda done, total: None,
    prefill: Prefill | None = None, on_prefill: OnCount | None = None,
) -> tuple[Generation, str]:  # fmt: skip
    """Generate once; returns what was generated and its text.

    The text is made even if nobody watches, so that two runs to be compared carry the same load.

    Args:
        prefill: from `build_prefill`; the model's own by default, whatever the settings say.
        on_prefill: called with `(prompt tokens, prompt tokens in all)` as layers run.
    """
    stream = TextStream(pair.target.tokenizer, on_text)

    hooks = _prefill_hooks(pair.target.model, prompt, on_prefill)

    def report(row: int, tokens: list[int], drafted: int) -> None:
        hooks.remove()
        on_count(stream.tokens + len(tokens), prompt.max_new_tokens)  # before text
        stream.add(tokens, drafted)

    with hooks:
        generation = generate(
            pair.target.model, prompt.inputs, method, prefill=prefill,
            seed=None if settings.is_greedy else settings.seed, on_tokens=report,
            verify_every=settings.verify_every, max_new_tokens=prompt.max_new_tokens,
            prefill_chunk_size=settings.prefill_chunk if prefill is None else prefill.chunk,
            cache_implementation="offloaded" if settings.kv_offload else None,
            **settings.generation_options(),
        )  # fmt: skip
    return generation, stream.close()


def _prefill_hooks(model: Any, prompt: Prompt, report: OnCount | None) -> ForwardHooks:
    """Returns a context that reports the prompt's tokens as they pass the layers."""
    hooks, passed, total = ForwardHooks(), 0, prompt.inputs["input_ids"].shape[1]

    def count(layer: Any, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        nonlocal passed
        passed += (args[0] if args else kwargs["hidden_states"]).shape[1]
        report(passed // len(layers), total)  # type: ignore[misc]

    layers = [] if report is None else adapt(model).decoder.layers
    for layer in layers:
        hooks.after(layer, count)
    return hooks
