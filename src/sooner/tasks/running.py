"""One generation over one clip, with its text as it comes."""

from __future__ import annotations

from collections.abc import Callable

from ..generation import Generation, generate
from ..methods import Method
from .clip import Clip
from .loading import Pair
from .prefill import Prefill, chunk_of
from .settings import CaptionSettings
from .streaming import OnText, TextStream

OnCount = Callable[[int, int], None]
"""Told `(new tokens so far, at most)` after every round."""


def run(
    pair: Pair,
    clip: Clip,
    settings: CaptionSettings,
    method: Method,
    on_text: OnText | None = None,
    on_count: OnCount | None = None,
    prefill: Prefill | None = None,
) -> tuple[Generation, str]:
    """Generate once; returns what was generated and its text.

    The text is made piece by piece even if nobody watches, so that two runs that are compared
    carry the same load.

    Args:
        prefill: from `build_prefill`; the model's own by default, whatever the settings say.
    """
    stream = TextStream(pair.target.tokenizer, on_text or _nobody)

    def tell(row: int, tokens: list[int], drafted: int) -> None:
        stream.add(tokens, drafted)
        if on_count is not None:
            on_count(len(stream.tokens), clip.max_new_tokens)

    made = generate(
        pair.target.model,
        clip.inputs,
        method,
        prefill=prefill,
        seed=None if settings.is_greedy else settings.seed,
        on_tokens=tell,
        max_new_tokens=clip.max_new_tokens,
        prefill_chunk_size=chunk_of(settings) if prefill is not None else settings.prefill_chunk,
        **settings.generation_options(),
    )
    return made, stream.close()


def _nobody(piece: str, drafted: bool) -> None:
    """For text that nobody watches."""
