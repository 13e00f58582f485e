"""One needle in one haystack: what a processor takes, what is right, and its record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .needle import Needle, tells
from .rendering import Part, place, process, render

ARTICLES = ("a", "an", "the")


@dataclass(frozen=True)
class NeedleSample:
    """A prompt with exactly one right answer.

    Attributes:
        id: kind, length, depth and seed.
        kind: `v-niah` or `mm-niah`.
        needle: what is hidden.
        parts: frames and documents in order, without the question.
        fps: frames a second that the model is told.
        told: further entries of the record: length, depth, seed, places, counts.
    """

    id: str
    kind: str
    needle: Needle
    parts: tuple[Part, ...]
    fps: float
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt_parts(self) -> tuple[Part, ...]:
        """The parts with the question behind them."""
        return (*self.parts, self.needle.question)

    @property
    def frames(self) -> int:
        return sum(len(part) for part in self.parts if not isinstance(part, str))

    def prompt(self, processor: Any) -> str:
        """The prompt as the model's chat template writes it, a placeholder for each video."""
        return render(processor, self.prompt_parts)

    def inputs(self, processor: Any, model: Any = None) -> dict[str, Any]:
        """The model's inputs, `input_ids [1, width]`, the mask and pixels.

        Args:
            processor: the model's.
            model: puts them on its device, pixels in its dtype.
        """
        inputs = process(processor, self.prompt_parts, self.fps)
        return inputs if model is None else place(inputs, model)

    def score(self, reply: str) -> bool:
        """Whether a reply is right.

        The answer's words, normalised. A caption is right if one of its scenes has the needle's
        shape, colour and background.
        """
        if self.needle.ask == "caption" and self.needle.scene is not None:
            return tells(reply, self.needle.scene)
        return normalise(reply) == normalise(self.needle.answer)

    def record(self) -> dict[str, Any]:
        """One line of a JSON-lines file; everything but pixels and documents."""
        return {
            "id": self.id,
            "kind": self.kind,
            "needle": self.needle.id,
            "medium": self.needle.medium,
            "question": self.needle.question,
            "answer": self.needle.answer,
            "frames": self.frames,
            **self.report,
        }


def normalise(text: str) -> str:
    """Return the text in lower case, without punctuation and articles, single spaces between."""
    words = re.sub(r"[^\w\s]", " ", text.lower()).split()
    return " ".join(word for word in words if word not in ARTICLES) or " ".join(words)
