"""V-NIAH and MM-NIAH: needles in haystacks of any length, at any depth (MMInference, 4.3, 4.4)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sooner.checks import check_number
from sooner.errors import SoonerError
from sooner.tasks.prompting import on_device

from .layout import cut, needle_place
from .needle import Needle, documents, fill, haystack, shape_needle
from .rendering import Counter, Part, process, render

ARTICLES = ("a", "an", "the")


@dataclass(frozen=True)
class NeedleSample:
    """A prompt with exactly one right answer.

    Attributes:
        needle: what is hidden, a `Needle` or another with `question` and `answer`.
        parts: frames and documents in order, without the question.
        fps: frames a second that the model is told.
        report: length, depth, seed, first frame of the needle, tokens, share of text.
    """

    needle: Any
    parts: tuple[Part, ...]
    fps: float
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt_parts(self) -> tuple[Part, ...]:
        """The parts with the question behind them."""
        return (*self.parts, self.needle.question)

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
        return inputs if model is None else on_device(inputs, model)

    def score(self, reply: str) -> bool:
        """Whether a reply is the answer's words, normalised."""
        return normalise(reply) == normalise(self.needle.answer)


def normalise(text: str) -> str:
    """Return the text in lower case, without punctuation and articles, single spaces between."""
    words = re.sub(r"[^\w\s]", " ", text.lower()).split()
    return " ".join(word for word in words if word not in ARTICLES) or " ".join(words)


@dataclass(frozen=True)
class NeedleTask:
    """Makes samples. A length, a depth and a seed give one sample, always the same.

    Without `text_share` this is V-NIAH: one film and a question. With it, MM-NIAH: documents stand
    between the film's pieces.

    Args:
        processor: the model's, which counts tokens and knows how frames are grouped.
        side: height and width of the frames in pixels.
        ask: the question about a needle, see `needle.ASKS`.
        text_share: share of the haystack's tokens that is text, 0 to below 1.
        needle_frames: frames that a needle is shown for;
            rounded up to what the family looks at together.
        piece: frames between two documents, about.
        fps: frames a second that the model is told.

    Raises:
        SoonerError: a value out of range.
    """

    processor: Any
    side: int = 112
    ask: str = "colour"
    text_share: float = 0.0
    needle_frames: int = 1
    piece: int = 16
    fps: float = 1.0
    unit: ClassVar[str] = "frames"

    def __post_init__(self) -> None:
        if not 0 <= self.text_share < 1:
            raise SoonerError(f"text_share is {self.text_share}; it must be 0 or more, and below 1")
        for name in ("side", "needle_frames", "piece", "fps"):
            check_number(name, getattr(self, name), above=True)

    @property
    def kind(self) -> str:
        return "mm-niah" if self.text_share else "v-niah"

    @cached_property
    def counter(self) -> Counter:
        return Counter(self.processor, self.side, self.fps)

    def sample(self, length: int, depth: float, seed: int = 0) -> NeedleSample:
        """One sample.

        Args:
            length: frames. What is really there, in whole groups of them, is in the prompt.
            depth: of the needle, 0 (first) to 1 (last).
            seed: of needle and haystack. A seed's needle is the same at every length and depth.

        Raises:
            SoonerError: a depth out of range, or a length that is too short.
        """
        check_number("depth", depth, 0, 1)
        group = self.counter.group
        count = -(-self.needle_frames // group) * group
        needle = shape_needle(
            np.random.default_rng(seed), ask=self.ask, frames=count, side=self.side
        )
        frames, pieces = cut(length, self.piece, group, self.text_share > 0)
        at = needle_place(frames, pieces, count, depth, group)
        rng = np.random.default_rng([seed, length, zlib.crc32(repr(float(depth)).encode())])
        hay = haystack(frames - count, at, needle.scene, self.side, rng)
        film = np.concatenate([hay[:at], needle.frames, hay[at:]])
        gaps = self._gaps(needle, pieces, frames // pieces, rng)
        parts = _interleaved(film, frames // pieces, gaps)
        report = {"length": length, "depth": depth, "seed": seed, "frame": at}
        return NeedleSample(
            needle=needle,
            parts=parts,
            fps=self.fps,
            report={**report, **self._counts(parts, needle.question)},
        )

    def _gaps(
        self, needle: Needle, pieces: int, piece: int, rng: np.random.Generator
    ) -> list[list[str]]:
        """Sentences between two pieces of film, none where the haystack is film alone."""
        if not self.text_share:
            return []
        visual = pieces * self.counter.clip(piece)
        text, gaps = round(visual * (1 / (1 - self.text_share) - 1)), pieces - 1
        budgets = [text * (gap + 1) // gaps - text * gap // gaps for gap in range(gaps)]
        return fill(documents(rng, needle.scene.shape), budgets, self.counter.text)

    def _counts(self, parts: tuple[Part, ...], question: str) -> dict[str, Any]:
        """Tokens of the prompt, and the share of text in the haystack."""
        visual = sum(self.counter.clip(len(part)) for part in parts if not isinstance(part, str))
        text = sum(self.counter.text(part) for part in parts if isinstance(part, str))
        return {
            "tokens": visual + text + self.counter.prompt(question),
            "text_share": round(text / (visual + text), 4),
        }


def _interleaved(film: np.ndarray, piece: int, gaps: list[list[str]]) -> tuple[Part, ...]:
    """Pieces of film with the gaps' sentences between them; empty gaps are left out."""
    parts: list[Part] = [film[:piece]]
    for number in range(1, len(film) // piece):
        if number <= len(gaps) and gaps[number - 1]:
            parts.append(" ".join(gaps[number - 1]))
        parts.append(film[number * piece : (number + 1) * piece])
    return tuple(parts)
