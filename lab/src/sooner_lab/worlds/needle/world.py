"""Clips of small frames in which the question names a colour, and the answer is a letter.

A frame is grey noise. It may have a band in one of the colours, and a tile with a letter. Frames
with both are needles; frames with one of them, or none, are the haystack. A colour may have two
needles, scene one and scene two in the order of time: which one a frame is can't be seen in it.
Everything is drawn from one `numpy.random.Generator`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

COLOURS = {
    "red": (215, 35, 35), "green": (40, 165, 60), "blue": (45, 80, 220),
    "yellow": (240, 215, 40), "purple": (120, 40, 150), "cyan": (60, 215, 230),
    "black": (10, 10, 12), "white": (250, 250, 250), "brown": (120, 70, 25),
    "pink": (250, 150, 190),
}  # fmt: skip
LETTERS = "bcefhjkmprtuwxyz"
NUMBERS = ("one", "two")
SIDE, CELL = 64, 16
"""Pixels of a frame's and a tile's side; a cell becomes one visual token, `TOKENS` a frame."""
TOKENS = (SIDE // CELL) ** 2
NONE = -1
"""Colour or letter of a frame that has none."""
CAPTION = 6
"""Tokens of a caption."""
HAY = (0.6, 0.75)
"""Cumulated shares of frames of noise and of colour alone; the others have a letter alone."""


@dataclass(frozen=True)
class Ask:
    """A question about one needle: an index of `COLOURS`, of `NUMBERS` and of `LETTERS`."""

    colour: int
    number: int
    letter: int

    @property
    def question(self) -> str:
        return f"what on {list(COLOURS)[self.colour]} scene {NUMBERS[self.number]} ?"

    @property
    def answer(self) -> str:
        return LETTERS[self.letter]


@dataclass(frozen=True)
class Clip:
    """What each frame shows, int `[frames]` or `NONE`, and a question about each needle; the first
    one is about the frame that was asked for. `numbers` are of needles alone."""

    colours: np.ndarray
    letters: np.ndarray
    numbers: np.ndarray
    asks: tuple[Ask, ...]


def sample_clip(
    rng: np.random.Generator, frames: int, keys: int, twins: int = 0, at: int | None = None
) -> Clip:
    """Draw a clip with needles of `keys` colours, of which the first `twins` have two.

    Args:
        at: frame of the first question's needle; anywhere by default.
    """
    kind, colours = rng.random(frames), rng.integers(len(COLOURS), size=frames)
    letters = rng.integers(len(LETTERS), size=frames)
    colours[(kind < HAY[0]) | (kind >= HAY[1])] = letters[kind < HAY[1]] = NONE
    slots, numbers = rng.permutation(frames), np.full(frames, NONE)
    if at is not None:
        slots = np.concatenate([[at], slots[slots != at]])
    asks: list[Ask] = []
    for place, colour in enumerate(rng.permutation(len(COLOURS))[:keys]):
        mine, slots = np.split(slots, [1 + (place < twins)])
        colours[mine] = colour
        letters[mine] = rng.choice(len(LETTERS), len(mine), replace=False)
        numbers[mine] = mine > mine.min()
        asks += [Ask(int(colour), int(numbers[each]), int(letters[each])) for each in mine]
    return Clip(colours, letters, numbers, tuple(asks))


def draw(
    rng: np.random.Generator, colours: np.ndarray, letters: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels of frames, uint8 `[frames, SIDE, SIDE, 3]`, and what each token shows, int
    `[frames, TOKENS]`: an index of colours, then letters, then noise. The noise is new each time.
    """
    count, cells = len(colours), SIDE // CELL
    coarse = rng.integers(90, 166, (count, SIDE // 8, SIDE // 8, 1)).repeat(8, 1).repeat(8, 2)
    pixels = coarse + rng.normal(0, 10, (count, SIDE, SIDE, 3))
    banded, lettered = np.flatnonzero(colours != NONE), np.flatnonzero(letters != NONE)
    tones = np.array(list(COLOURS.values()))[colours[banded]] + rng.normal(0, 6, (len(banded), 3))
    pixels[banded, :CELL] = pixels[banded, :CELL] * 0.1 + 0.9 * tones[:, None, None]
    places = rng.integers(cells, TOKENS - 1, len(lettered))
    for frame, place in zip(lettered, places, strict=True):
        row, column = place // cells * CELL, place % cells * CELL
        pixels[frame, row : row + CELL, column : column + CELL] = tile(int(letters[frame]))
    labels = np.full((count, TOKENS), len(COLOURS) + len(LETTERS))
    labels[banded, :cells] = colours[banded, None]
    labels[lettered, places] = len(COLOURS) + letters[lettered]
    return pixels.clip(0, 255).astype(np.uint8), labels


@functools.cache
def tile(letter: int) -> np.ndarray:
    """Return a letter's black on white, uint8 `[CELL, CELL, 1]`."""
    picture = Image.new("L", (CELL, CELL), 235)
    text, font = LETTERS[letter].upper(), ImageFont.load_default(15)
    ImageDraw.Draw(picture).text((CELL / 2, CELL / 2), text, fill=0, font=font, anchor="mm")
    return np.asarray(picture)[..., None]


def captions(rng: np.random.Generator, count: int) -> str:
    """Return sentences of `CAPTION` tokens about scenes that nobody sees."""
    shapes = ("circle", "square", "triangle", "star", "cross")
    parts = (tuple(COLOURS), shapes, ("up", "down", "left"))
    words = zip(*(rng.choice(part, count) for part in parts), strict=True)
    return " ".join("a {} {} moves {} .".format(*each) for each in words)
