"""Text between the frames: a user's files, or sentences of the miniature's world."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from pathlib import Path
from typing import Protocol

import numpy as np

from sooner.errors import SoonerError

from ..worlds.video import world
from .needle import tell

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")

Count = Callable[[str], int]
"""Tokens of a text."""


class Library(Protocol):
    """Source of sentences, without end."""

    @property
    def name(self) -> str:
        """What it is, for the record."""
        ...

    def sentences(self, rng: np.random.Generator, not_shape: str | None) -> Iterator[list[str]]:
        """Documents as lists of sentences, none of which tells of `not_shape`."""
        ...


@dataclass(frozen=True)
class Tales:
    """Documents about scenes that nobody sees, in the miniature's words.

    Args:
        length: sentences of a document.
    """

    length: int = 8

    @property
    def name(self) -> str:
        return "moving-shapes"

    def sentences(self, rng: np.random.Generator, not_shape: str | None) -> Iterator[list[str]]:
        while True:
            scenes = (world.sample_scene(rng) for _ in range(2 * self.length))
            sentences = [tell(scene) for scene in scenes if scene.shape != not_shape]
            yield sentences[: self.length]


@dataclass(frozen=True)
class Texts:
    """A user's documents, in seeded order and over again where they do not suffice.

    Args:
        documents: their texts.

    Raises:
        SoonerError: none, or only empty ones.
    """

    documents: Sequence[str]

    def __post_init__(self) -> None:
        if not any(text.strip() for text in self.documents):
            raise SoonerError("the documents hold no text; give files with some")

    @property
    def name(self) -> str:
        return f"texts({len(self.documents)})"

    def sentences(self, rng: np.random.Generator, not_shape: str | None) -> Iterator[list[str]]:
        full = [text for text in self.documents if text.strip()]
        for place in cycle(rng.permutation(len(full)).tolist()):
            yield [part.strip() for part in _SENTENCE_END.split(full[place]) if part.strip()]


def read_texts(paths: Sequence[Path | str]) -> Texts:
    """Text files, and all `.txt` and `.md` files of folders, one document each.

    Raises:
        SoonerError: a path that is not there or is no text.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        inside = (file_path for file_path in path.rglob("*") if file_path.suffix in (".txt", ".md"))
        files += sorted(inside) if path.is_dir() else [path]
    try:
        return Texts([file.read_text(encoding="utf-8-sig") for file in files])
    except (OSError, UnicodeDecodeError) as error:
        raise SoonerError(f"a document can't be read as text ({error})") from error


def fill(documents: Iterator[list[str]], budgets: Sequence[int], count: Count) -> list[list[str]]:
    """Whole sentences for each gap between frames, close to its budget of tokens.

    A gap begins with a new document, takes up more where that is short, and cuts the last one
    behind a sentence. What it takes too much or too little, the next one makes up for, so the sum
    is off by about half a sentence.

    Args:
        budgets: tokens of each gap.
        count: counts the tokens of a sentence.
    """
    gaps: list[list[str]] = []
    owed = 0.0
    for budget in budgets:
        owed += budget
        gap: list[str] = []
        for sentence in chain.from_iterable(documents):
            tokens = max(count(sentence), 1)
            if owed < tokens / 2:
                break
            gap.append(sentence)
            owed -= tokens
        gaps.append(gap)
    return gaps
