"""One needle in one haystack: what a processor takes, what is right, and its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..datasets.scoring import LETTERS, choice_prompt, exact_match, letter_of
from .needle import Needle, tells
from .rendering import Part, messages, place, process, render


@dataclass(frozen=True)
class NeedleSample:
    """A prompt with exactly one right answer.

    Attributes:
        id: kind, length, depth and seed.
        kind: `v-niah` or `mm-niah`.
        needle: what is hidden.
        parts: frames and documents in order, without the question.
        fps: frames a second that the model is told.
        is_choice: the question offers its options under letters.
        told: further entries of the record: length, depth, seed, places, counts.
    """

    id: str
    kind: str
    needle: Needle
    parts: tuple[Part, ...]
    fps: float
    is_choice: bool
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """What is asked behind the haystack."""
        return question(self.needle, self.is_choice)

    @property
    def answer(self) -> str:
        """The right reply: a letter, or the words."""
        if not self.is_choice:
            return self.needle.answer
        return LETTERS[self.needle.options.index(self.needle.answer)]

    @property
    def asked(self) -> tuple[Part, ...]:
        """The parts with the question behind them."""
        return (*self.parts, self.question)

    @property
    def frames(self) -> int:
        return sum(len(part) for part in self.parts if not isinstance(part, str))

    def messages(self) -> list[dict[str, Any]]:
        """A chat of one user message, the videos' pixels left out."""
        return messages(self.asked)

    def prompt(self, processor: Any) -> str:
        """The prompt as the model's chat template writes it, a placeholder for each video."""
        return render(processor, self.asked)

    def inputs(self, processor: Any, model: Any = None) -> dict[str, Any]:
        """The model's inputs, `input_ids [1, width]`, the mask and pixels.

        Args:
            processor: the model's.
            model: puts them on its device, pixels in its dtype.
        """
        inputs = process(processor, self.asked, self.fps)
        return inputs if model is None else place(inputs, model)

    def score(self, reply: str) -> bool:
        """Whether a reply is right.

        A letter where options were offered; else the answer's words, normalised. A caption is right
        if one of its scenes has the needle's shape, colour and background.
        """
        if self.is_choice:
            chosen = letter_of(reply, self.needle.options)
            return chosen is not None and LETTERS[chosen] == self.answer
        if self.needle.ask == "caption" and self.needle.scene is not None:
            return tells(reply, self.needle.scene)
        return exact_match(reply, [self.needle.answer])

    def record(self) -> dict[str, Any]:
        """One line of a JSON-lines file; everything but pixels and documents."""
        return {
            "id": self.id,
            "kind": self.kind,
            "needle": self.needle.id,
            "medium": self.needle.medium,
            "question": self.question,
            "options": list(self.needle.options) if self.is_choice else [],
            "answer": self.answer,
            "frames": self.frames,
            **self.told,
        }


def question(needle: Needle, is_choice: bool) -> str:
    """The request for a needle's answer."""
    return choice_prompt(needle.question, needle.options) if is_choice else needle.question
