"""Speculative decoding of a multimodal model with a draft that only reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..engine.interface import AdapterLike
from .context import Context, words_only
from .settings import MethodSettings
from .speculative import Speculative


@dataclass(frozen=True)
class OnSD(Speculative):
    """Runs speculative decoding with a text-only draft (Gagrani et al. 2024).

    The draft is a language model, or the language model inside a multimodal one, and gets the
    words of the prompt alone: no pixels, no placeholders, and so no cost that grows with the
    video. What only the pixels tell it has to guess.

    Args:
        all: as for `Speculative`; the baseline drafts 5 tokens a round.

    Raises:
        SoonerError: num_draft_tokens below 1, or draft and target of different tokenizers.
    """

    name: ClassVar[str] = "onsd"

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        experience = settings.experience(None)
        return cls(
            settings.draft, num_draft_tokens=settings.num_draft_tokens, experience=experience
        )

    def _draft_of(self, context: Context) -> tuple[AdapterLike, Mapping[str, Any]]:
        adapter, inputs = super()._draft_of(context)
        return adapter, words_only(context) if self.draft_inputs is None else inputs
