"""V-NIAH and MM-NIAH: needles in haystacks of any length, at any depth (MMInference, 4.3, 4.4)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from sooner.checks import check_choice, check_number, check_share
from sooner.errors import SoonerError

from .counting import Counter
from .documents import Library, Tales, fill
from .haystack import Cut, Haystack, MovingShapes
from .layout import NeedlePlan, cut, fit_frames, needle_place
from .needle import MEDIA, Needle, shape_needle
from .rendering import Part
from .sample import NeedleSample

UNITS = ("frames", "tokens")


@dataclass(frozen=True)
class NeedleTask:
    """Makes samples. A length, a depth and a seed give one sample, always the same.

    Without `text_share` this is V-NIAH: one film and a question. With it, MM-NIAH: documents stand
    between the film's pieces, and the needle may be one of their sentences.

    Args:
        processor: the model's, which counts tokens and knows how frames are grouped.
        haystack: source of frames.
        library: source of documents.
        medium: of needles from the world, `image` or `text`.
        ask: of needles from the world, see `needle.ASKS`.
        unit: what lengths count, `frames` or `tokens` of the whole prompt.
        text_share: share of the haystack's tokens that is text, 0 to below 1.
        needle_frames: frames that a needle is shown for;
            rounded up to what the family looks at together.
        piece: frames between two documents, about.
        fps: frames a second that the model is told.

    Raises:
        SoonerError: a value out of range, or values that do not go together.
    """

    processor: Any
    haystack: Haystack = field(default_factory=MovingShapes)
    library: Library = field(default_factory=Tales)
    medium: str = "image"
    ask: str = "colour"
    unit: str = "frames"
    text_share: float = 0.0
    needle_frames: int = 1
    piece: int = 16
    fps: float = 1.0

    def __post_init__(self) -> None:
        check_choice("unit", self.unit, UNITS)
        check_choice("needle medium", self.medium, MEDIA)
        if not 0 <= self.text_share < 1:
            raise SoonerError(f"text_share is {self.text_share}; it must be 0 or more, and below 1")
        for name in ("needle_frames", "piece", "fps"):
            check_number(name, getattr(self, name), above=True)
        if self.medium == "text" and not self.text_share:
            raise SoonerError("a needle of text needs documents; set text_share, such as 0.25")

    @property
    def kind(self) -> str:
        return "mm-niah" if self.text_share else "v-niah"

    @cached_property
    def counter(self) -> Counter:
        return Counter(self.processor, self.haystack.size, self.fps)

    def sample(self, length: int, depth: float, seed: int = 0) -> NeedleSample:
        """One sample.

        Args:
            length: frames, or tokens of the whole prompt, as `unit` says. What is really there, in
                whole frames and sentences, is in the record.
            depth: of the needle, 0 (first) to 1 (last).
            seed: of needle and haystack. A seed's needle is the same at every length and depth.

        Raises:
            SoonerError: a depth out of range, or a length that is too short.
        """
        check_share("depth", depth)
        needle = self._needle(seed)
        plan = self.plan(length, depth, needle)
        rng = np.random.default_rng([seed, length, zlib.crc32(repr(float(depth)).encode())])
        film = self._film(plan, needle, rng)
        gaps, at = self._documents(plan, needle, depth, rng)
        parts = _interleaved(film, plan.piece, gaps)
        sample = NeedleSample(
            id=f"{self.kind}/{length}-{self.unit}/{depth:g}/{seed}",
            kind=self.kind,
            needle=needle,
            parts=parts,
            fps=self.fps,
        )
        place = {"frame": plan.at} if needle.medium == "image" else at
        details = {
            "length": length,
            "unit": self.unit,
            "depth": depth,
            "seed": seed,
            "place": place,
        }
        return replace(sample, report={**details, **self._counts(parts, needle.question)})

    def plan(self, length: int, depth: float, needle: Needle) -> NeedlePlan:
        """Frames, pieces and budgets of text for a length."""
        group, is_mixed = self.counter.group, self.text_share > 0
        fixed = self.counter.prompt(needle.question)
        grown = 1 / (1 - self.text_share)
        frames = length
        if self.unit == "tokens":
            frames = self._fitting(length - fixed)
        frames, pieces = cut(frames, self.piece, group, is_mixed)
        visual = pieces * self.counter.clip(frames // pieces)
        text = visual * (grown - 1)
        if self.unit == "tokens" and is_mixed:
            text = max(length - visual - fixed, 0)
        needle_frames = 0 if needle.frames is None else len(needle.frames)
        gaps = pieces - 1
        return NeedlePlan(
            frames=frames,
            pieces=pieces,
            needle=needle_frames,
            at=needle_place(frames, pieces, needle_frames, depth, group) if needle_frames else 0,
            documents=_shared(round(text), gaps) if is_mixed else (),
        )

    def _fitting(self, tokens: int) -> int:
        """Frames with which the haystack comes nearest to `tokens`, its share of text included."""
        minimum = self.counter.group * (2 if self.text_share else 1)
        small = self._visual(minimum) / (1 - self.text_share)
        if tokens < small:
            raise SoonerError(
                f"a haystack of {tokens} tokens is too short: {minimum} frames with their share of "
                f"text take {round(small)}; use a greater length"
            )
        visual = tokens * (1 - self.text_share)
        return fit_frames(self._visual, round(visual), minimum, self.counter.group)

    def _visual(self, frames: int) -> int:
        cut_frames, pieces = cut(frames, self.piece, self.counter.group, self.text_share > 0)
        return pieces * self.counter.clip(cut_frames // pieces)

    def _needle(self, seed: int) -> Needle:
        """The seed's needle, in whole groups of frames and of the haystack's size."""
        group = self.counter.group
        count = -(-self.needle_frames // group) * group
        rng, side = np.random.default_rng(seed), self.haystack.size[0]
        return shape_needle(rng, self.medium, ask=self.ask, frames=count, side=side)  # type: ignore[arg-type]

    def _film(self, plan: NeedlePlan, needle: Needle, rng: np.random.Generator) -> np.ndarray:
        """The haystack with the needle in it, `[frames, height, width, 3]`."""
        scene = needle.scene
        if needle.frames is None:
            where = Cut(at=plan.frames, shape=scene.shape if scene else None)
            return self.haystack.frames(plan.frames, where, rng)
        where = Cut(plan.at, scene.shape if scene else None, scene.background if scene else None)
        rest = plan.frames - plan.needle
        hay = self.haystack.frames(rest, where, rng) if rest else needle.frames[:0]
        return np.concatenate([hay[: plan.at], needle.frames, hay[plan.at :]])

    def _documents(
        self, plan: NeedlePlan, needle: Needle, depth: float, rng: np.random.Generator
    ) -> tuple[list[list[str]], dict[str, int]]:
        """Sentences of each gap, and the needle's place if it is one of them."""
        if not plan.documents:
            return [], {}
        not_shape = needle.scene.shape if needle.scene else None
        budgets = list(plan.documents)
        if needle.text is not None:
            budgets[0] -= self.counter.text(needle.text)
        gaps = fill(self.library.sentences(rng, not_shape), budgets, self.counter.text)
        if needle.text is None:
            return gaps, {}
        return _hidden(gaps, needle.text, depth)

    def _counts(self, parts: Sequence[Part], question: str) -> dict[str, Any]:
        """Tokens of the prompt by what they are, and the share of text in the haystack."""
        clips = [part for part in parts if not isinstance(part, str)]
        texts = [part for part in parts if isinstance(part, str)]
        visual = sum(self.counter.clip(len(clip)) for clip in clips)
        text = sum(self.counter.text(text_part) for text_part in texts)
        fixed = self.counter.prompt(question)
        return {
            "tokens": visual + text + fixed,
            "visual_tokens": visual,
            "text_tokens": text,
            "text_share": round(text / (visual + text), 4),
            "pieces": len(clips),
            "haystack": self.haystack.name,
            "library": self.library.name if texts else None,
        }


def _shared(total: int, gaps: int) -> tuple[int, ...]:
    """`total` in equal parts, none more than one apart."""
    return tuple(total * (gap + 1) // gaps - total * gap // gaps for gap in range(gaps))


def _hidden(
    gaps: list[list[str]], text: str, depth: float
) -> tuple[list[list[str]], dict[str, int]]:
    """The needle's sentence at `depth` of all sentences."""
    at = round(depth * sum(map(len, gaps)))
    for number, gap in enumerate(gaps):
        if at <= len(gap):
            changed = [*gap[:at], text, *gap[at:]]
            position = {"document": number, "sentence": at}
            return [*gaps[:number], changed, *gaps[number + 1 :]], position
        at -= len(gap)
    raise AssertionError("a place among no sentences")


def _interleaved(film: np.ndarray, piece: int, gaps: list[list[str]]) -> tuple[Part, ...]:
    """Pieces of film with the gaps' sentences between them; empty gaps are left out."""
    parts: list[Part] = [film[:piece]]
    for number in range(1, len(film) // piece):
        if number <= len(gaps) and gaps[number - 1]:
            parts.append(" ".join(gaps[number - 1]))
        parts.append(film[number * piece : (number + 1) * piece])
    return tuple(parts)
