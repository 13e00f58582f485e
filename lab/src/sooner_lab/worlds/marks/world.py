"""Clips in which few visual tokens matter, and the exact answers to what is asked about them.

A clip has 64 frames of 8x8 cells; a cell is one visual token. Four cells of each frame show a
*mark*: a ring of some colour and form around a digit or a shape. The rest is drifting texture.

- Each of the 18 pairs of a colour and a ring has a name and is shown once in a clip, in one cell,
  for a number of frames: six of them in one frame only, six briefly, six for longer. These are what
  is told of.
- All other marks have grey rings: they look alike and nothing asks about them.

A caption takes the 18 pairs in a fixed order and says of each what its ring holds and where it is:
3 of a sentence's 8 tokens need the pixels, 36 % of a caption. What rings hold is unevenly likely,
so that a model without pixels is right now and then, as language models are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

COLOURS = {
    "red": (225, 40, 40),
    "green": (45, 180, 65),
    "blue": (50, 85, 235),
    "yellow": (240, 220, 45),
    "purple": (165, 55, 195),
    "cyan": (60, 215, 230),
}
GREY = "grey"
GREY_RGB = (150, 150, 150)
RINGS = ("circle", "square", "diamond")
GLYPHS = (
    "3", "star", "8", "cross", "0", "5", "heart", "1", "7", "arrow", "2", "6", "9", "4",
)  # fmt: skip
"""What a ring holds, the likeliest first: the n-th is drawn n times less often than the first."""
ROWS = ("top", "upper", "lower", "bottom")
COLUMNS = ("left", "midleft", "midright", "right")

GRID = 8
CELLS = GRID * GRID
FRAMES = 64
MARKS = 4
"""Marks of a frame, but in clips too short for every pair."""
KEYS = tuple(product(COLOURS, RINGS))
"""The pairs of colour and ring that are told of, in a caption's order."""
NAMES = (
    "ruby", "rose", "cherry", "jade", "mint", "fern", "navy", "azure", "denim",
    "gold", "lemon", "amber", "plum", "violet", "mauve", "teal", "aqua", "ice",
)  # fmt: skip
"""A word for each of `KEYS`. Two words would have to be put together before anything is found."""
FAINTEST = 0.25
"""Contrast of the faintest mark, as a share of the clip's clearest."""

OPENING = "in this video we see"
SENTENCE = 8
NEEDED = (1, 5, 6)
"""Places of a sentence's tokens that need the pixels: what the ring holds, the row, the column."""

_LIKELY = 1 / np.arange(1, len(GLYPHS) + 1)
LIKELY = _LIKELY / _LIKELY.sum()


@dataclass(frozen=True)
class Mark:
    """A ring, what it holds, and when and where it is shown.

    Attributes:
        colour: of `COLOURS`, or `GREY`: not told of.
        ring, glyph: of `RINGS` and `GLYPHS`.
        cell: 0..63 in reading order.
        begin, length: its frames; one that the clip's end cuts goes on at the clip's beginning.
        contrast: 0..1, how far it covers the texture.
    """

    colour: str
    ring: str
    glyph: str
    cell: int
    begin: int
    length: int
    contrast: float

    @property
    def row(self) -> str:
        return ROWS[self.cell // GRID * len(ROWS) // GRID]

    @property
    def column(self) -> str:
        return COLUMNS[self.cell % GRID * len(COLUMNS) // GRID]

    @property
    def is_told(self) -> bool:
        return self.colour != GREY

    @property
    def name(self) -> str:
        """Of a mark that is told of."""
        return NAMES[KEYS.index((self.colour, self.ring))]


@dataclass(frozen=True)
class MarkClip:
    """A clip.

    Attributes:
        frames: how many.
        marks: all of them, in no order.
        seed: of texture, drift, jitter and noise.
    """

    frames: int
    marks: tuple[Mark, ...]
    seed: int

    def shown(self) -> Iterator[tuple[int, Mark]]:
        """Each frame of each mark."""
        for mark in self.marks:
            for step in range(mark.length):
                yield (mark.begin + step) % self.frames, mark

    def told(self) -> list[Mark]:
        """The marks that a caption tells of, in its order."""
        found = {(mark.colour, mark.ring): mark for mark in self.marks if mark.is_told}
        return [found[key] for key in KEYS if key in found]


def marks_a_frame(frames: int) -> int:
    """`MARKS`, or as many as a clip needs to show every pair once and two grey marks."""
    return max(MARKS, -(-(len(KEYS) + 2) // frames))


def lengths(rng: np.random.Generator, frames: int, pairs: int = len(KEYS)) -> np.ndarray:
    """Frames that each pair is shown for [pairs]: a third flash, are brief, last; shuffled."""
    third = pairs // 3
    brief = max(1, frames // 32), max(1, frames // 16)
    lasting = max(1, 5 * frames // 64), max(1, 12 * frames // 64)
    drawn = [rng.integers(low, high + 1, third) for low, high in (brief, lasting)]
    return rng.permutation(np.concatenate([np.ones(pairs - 2 * third, int), *drawn]))


def sample_clip(
    rng: np.random.Generator,
    frames: int = FRAMES,
    clear: float = 1.0,
    marks: int = 0,
    pairs: int = len(KEYS),
    repeated: bool = False,
) -> MarkClip:
    """Draw a clip.

    Args:
        frames: how many.
        clear: contrast of the clearest mark, 0..1; each has its own, down to `FAINTEST` of it.
        marks: of each frame; 0 is `marks_a_frame`.
        pairs: of `KEYS` that are shown. Clips of fewer are for training and have no caption.
        repeated: instead of grey marks, show the pairs again in other cells, also for training: it
            can't be asked where they are.

    Raises:
        ValueError: too few marks to show every pair.
    """
    room = (marks or marks_a_frame(frames)) * frames
    kept = lengths(rng, frames, pairs)
    if room < kept.sum():
        raise ValueError(
            f"{room // frames} marks a frame are too few for {kept.sum()} frames of marks in "
            f"{frames} frames; give at least {-(-int(kept.sum()) // frames)}"
        )
    shown_pairs = [KEYS[index] for index in np.sort(rng.permutation(len(KEYS))[:pairs])]
    spans = [*zip(shown_pairs, kept.tolist(), strict=True)]
    left, most = room - int(kept.sum()), max(1, 12 * frames // 64)
    while left:
        length = min(int(rng.integers(1, most + 1)), left)
        other = shown_pairs[len(spans) % pairs] if repeated else (GREY, str(rng.choice(RINGS)))
        spans.append((other, length))
        left -= length
    holds = {key: GLYPHS[rng.choice(len(GLYPHS), p=LIKELY)] for key in shown_pairs}
    # All spans stand in one line that is folded at the clip's length: each frame has equally many.
    busy = np.zeros((frames, CELLS), dtype=bool)
    found, begin = [], 0
    for place in rng.permutation(len(spans)):
        (colour, ring), length = spans[place]
        shown = (begin + np.arange(length)) % frames
        cell = int(rng.choice(np.flatnonzero(~busy[shown].any(0))))
        busy[shown, cell] = True
        glyph = holds.get((colour, ring)) or GLYPHS[rng.choice(len(GLYPHS), p=LIKELY)]
        contrast = clear * float(rng.uniform(FAINTEST, 1.0))
        found.append(Mark(colour, ring, glyph, cell, begin % frames, length, contrast))
        begin += length
    return MarkClip(frames, tuple(found), int(rng.integers(2**62)))


def places(clip: MarkClip, told: bool = False) -> np.ndarray:
    """Which visual tokens show a mark (only one that is told of, if `told`): bool [frames, 64]."""
    found = np.zeros((clip.frames, CELLS), dtype=bool)
    for frame, mark in clip.shown():
        found[frame, mark.cell] |= mark.is_told or not told
    return found


def sentence(mark: Mark) -> str:
    """What a caption says of a mark: eight tokens."""
    return f"{mark.name} {mark.glyph} , seen at {mark.row} {mark.column} ;"


def caption(clip: MarkClip) -> str:
    """The one right caption of a clip: 149 tokens, and an end."""
    return " ".join([OPENING, *(sentence(mark) for mark in clip.told())])


def needs_pixels() -> np.ndarray:
    """Which tokens of any caption, its end included, need the pixels: bool [150]."""
    opening = len(OPENING.split())
    found = np.zeros(opening + SENTENCE * len(KEYS) + 1, dtype=bool)
    for place in NEEDED:
        found[opening + place : -1 : SENTENCE] = True
    return found


@dataclass(frozen=True)
class MarkQuestion:
    """A question and its one right answer, which says first what it is about."""

    text: str
    answer: str


def ask(mark: Mark, kind: int) -> MarkQuestion:
    """What a ring holds (0), its row (1) or its column (2)."""
    text, answer = (
        ("what is in", mark.glyph),
        ("which row has", mark.row),
        ("which column has", mark.column),
    )[kind]
    return MarkQuestion(f"{text} {mark.name} ?", f"{mark.name} {answer} .")


def sample_questions(
    rng: np.random.Generator, clip: MarkClip, count: int = 8, where: bool = True
) -> list[MarkQuestion]:
    """`count` questions about different pairs as far as there are: what and, if `where`, which row
    and which column in turn."""
    told = clip.told()
    picked = np.concatenate([rng.permutation(len(told)) for _ in range(-(-count // len(told)))])
    kinds = 3 if where else 1
    return [ask(told[key], place % kinds) for place, key in enumerate(picked[:count])]


def score(text: str, clip: MarkClip) -> float:
    """The share of the words that need the pixels which a caption has right, 0..1.

    Tokenizers write no space before a comma; it counts as a word of its own.
    """
    said, right = text.replace(",", " , ").split(), caption(clip).split()
    need = np.flatnonzero(needs_pixels())
    return float(np.mean([place < len(said) and said[place] == right[place] for place in need]))
