"""The moving-shapes world: what the video miniature is trained on and measured against.

A clip is a row of scenes. In each scene one outlined shape rests at its start cell on a 3x3
grid, moves, and rests at its end cell; the caption names all of it in scene order. Everything
is drawn from one `numpy.random.Generator`, so a seed is a clip and its one right answer.

Time: a scene takes `SCENE_FRAMES` frames at `FPS`. The shape moves in the last part of the first
half only, so two evenly sampled frames a scene (its first and its middle frame) show both cells.
A clip may give each scene its own length instead.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import outlines

SHAPES = ("circle", "square", "triangle", "star", "cross")
COLOURS = {
    "red": (215, 35, 35),
    "green": (40, 165, 60),
    "blue": (45, 80, 220),
    "yellow": (240, 215, 40),
    "purple": (145, 50, 175),
    "cyan": (60, 205, 220),
}
BACKGROUNDS = {
    "black": (44, 44, 48),
    "grey": (132, 132, 132),
    "white": (232, 232, 228),
    "brown": (126, 82, 48),
    "pink": (240, 165, 185),
}
ROWS = ("top", "middle", "bottom")
COLUMNS = ("left", "centre", "right")
NUMBERS = (
    "one", "two", "three", "four", "five", "six",
    "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
PROMPT = "describe the scenes in order ."
PROMPTS = (
    PROMPT,
    "describe the video .",
    "describe this video in detail .",
    "what happens in this video ?",
    "describe every scene .",
)
"""What the miniature was asked in training."""
ATTRIBUTES = ("shape", "colour", "background", "start", "end")

FPS = 12
SCENE_FRAMES = 24
SIDE = 224
MOVE = (0.25, 0.5)  # the share of a scene in which its shape is under way
OUTLINE_RGB = (12, 12, 12)
MAX_SCENES = len(NUMBERS)


@dataclass(frozen=True)
class Scene:
    """One scene. Cells are 0..8 in reading order; lengths are shares of the frame's side."""

    shape: str
    colour: str
    background: str
    start: int
    end: int
    radius: float
    start_shift: tuple[float, float]
    end_shift: tuple[float, float]


@dataclass(frozen=True)
class SceneClip:
    """Scenes in the order in which they are shown.

    Attributes:
        lengths: frames of film for each scene; empty is `SCENE_FRAMES` each.

    Raises:
        ValueError: not one length of at least 1 for each scene.
    """

    scenes: tuple[Scene, ...]
    lengths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.lengths and (len(self.lengths) != len(self.scenes) or min(self.lengths) < 1):
            raise ValueError(
                f"lengths {self.lengths} do not fit {len(self.scenes)} scenes; "
                "give one of at least 1 for each, or none"
            )

    @property
    def film_lengths(self) -> tuple[int, ...]:
        return self.lengths or (SCENE_FRAMES,) * len(self.scenes)

    @property
    def total_frames(self) -> int:
        return sum(self.film_lengths)

    def locate(self, index: int) -> tuple[Scene, float]:
        """The scene that frame `index` of the film shows, and the moment 0..1 of that scene."""
        ends = np.cumsum(self.film_lengths)
        place = int(np.searchsorted(ends, index, side="right"))
        scene, length = self.scenes[place], self.film_lengths[place]
        return scene, float((index - ends[place] + length) / length)


def sample_scene(rng: np.random.Generator, not_background: str | None = None) -> Scene:
    """Draw a scene; `not_background` keeps a cut visible when the previous scene had it."""
    start, end = rng.choice(9, size=2, replace=False)
    shift = rng.uniform(-0.025, 0.025, size=4)
    return Scene(
        shape=str(rng.choice(SHAPES)),
        colour=str(rng.choice(list(COLOURS))),
        background=str(rng.choice([name for name in BACKGROUNDS if name != not_background])),
        start=int(start),
        end=int(end),
        radius=float(rng.uniform(0.135, 0.16)),
        start_shift=(float(shift[0]), float(shift[1])),
        end_shift=(float(shift[2]), float(shift[3])),
    )


def sample_clip(rng: np.random.Generator, scenes: int = 8) -> SceneClip:
    """Draw a clip of `scenes` scenes (1..`MAX_SCENES`, else ValueError)."""
    if not 1 <= scenes <= MAX_SCENES:
        raise ValueError(f"a clip has 1 to {MAX_SCENES} scenes, not {scenes}")
    drawn: list[Scene] = []
    for _ in range(scenes):
        drawn.append(sample_scene(rng, drawn[-1].background if drawn else None))
    return SceneClip(tuple(drawn))


def still(scene: Scene) -> Scene:
    """Returns the scene with its shape at rest at the start cell: all that a single frame
    tells.
    """
    return dataclasses.replace(scene, end=scene.start, end_shift=scene.start_shift)


def cell_name(cell: int) -> str:
    """`0` is "top left", `8` is "bottom right"."""
    return f"{ROWS[cell // 3]} {COLUMNS[cell % 3]}"


def direction(start: int, end: int) -> str:
    """The way from one cell to another: "right", "up and left", ..."""
    down, right = end // 3 - start // 3, end % 3 - start % 3
    vertical = "down" if down > 0 else "up" if down < 0 else ""
    horizontal = "right" if right > 0 else "left" if right < 0 else ""
    return " and ".join(part for part in (vertical, horizontal) if part)


def describe(scene: Scene, index: int) -> str:
    """The sentence about the scene at `index`; words and marks stand between single spaces."""
    subject = f"a {scene.colour} {scene.shape} on a {scene.background} background"
    begin, end = cell_name(scene.start), cell_name(scene.end)
    if begin == end:
        return f"scene {NUMBERS[index]} : {subject} stays at the {begin} ."
    way = direction(scene.start, scene.end)
    return f"scene {NUMBERS[index]} : {subject} moves from the {begin} to the {end} , {way} ."


def caption(clip: SceneClip) -> str:
    """The one right caption of a clip: 22 to 24 words a scene that moves, 15 a still one."""
    return " ".join(describe(scene, index) for index, scene in enumerate(clip.scenes))


_CELL = rf"({'|'.join(ROWS)}) ({'|'.join(COLUMNS)})"
_SENTENCE = re.compile(
    rf"scene ({'|'.join(NUMBERS)}) ?: a (\w+) (\w+) on a (\w+) background "
    rf"(?:moves from the {_CELL} to the {_CELL}|stays at the {_CELL})"
)


def parse(text: str) -> dict[int, dict[str, str | int]]:
    """What a caption claims: `{scene index: {attribute: value}}`; the first claim counts."""
    claims: dict[int, dict[str, str | int]] = {}
    for match in _SENTENCE.finditer(text):
        number, colour, shape, background, *groups = match.groups()
        cells = groups[:4] if groups[0] else groups[4:] * 2
        start = 3 * ROWS.index(cells[0]) + COLUMNS.index(cells[1])
        end = 3 * ROWS.index(cells[2]) + COLUMNS.index(cells[3])
        claim: dict[str, str | int] = {"shape": shape, "colour": colour, "background": background}
        claims.setdefault(NUMBERS.index(number), {**claim, "start": start, "end": end})
    return claims


def score(text: str, clip: SceneClip) -> dict[str, float]:
    """The share of scenes that `text` has right, 0..1 for each of `ATTRIBUTES`.

    A scene that the text leaves out counts as wrong in every attribute.
    """
    claims = parse(text)
    right = [
        {name: claims.get(index, {}).get(name) == getattr(scene, name) for name in ATTRIBUTES}
        for index, scene in enumerate(clip.scenes)
    ]
    return {name: float(np.mean([row[name] for row in right])) for name in ATTRIBUTES}


def sample_indices(total: int, count: int) -> np.ndarray:
    """The frames that transformers' video processors sample: `count` of `total`, evenly."""
    return np.arange(count) * total // count


def centre(scene: Scene, moment: float) -> tuple[float, float]:
    """Where the shape is, as (x, y) shares of the side, at `moment` 0..1 of its scene."""
    begin, stop = MOVE
    way = float(np.clip((moment - begin) / (stop - begin), 0.0, 1.0))
    ends = []
    for cell, shift in ((scene.start, scene.start_shift), (scene.end, scene.end_shift)):
        ends.append(((cell % 3 + 0.5) / 3 + shift[0], (cell // 3 + 0.5) / 3 + shift[1]))
    (x0, y0), (x1, y1) = ends
    return x0 + way * (x1 - x0), y0 + way * (y1 - y0)


def render(
    clip: SceneClip, indices: Sequence[int] | np.ndarray | None = None, side: int = SIDE
) -> np.ndarray:
    """Draw frames of a clip.

    Args:
        indices: which frames, 0..`clip.total_frames`-1; None is all of them. Only these are
            drawn, so a training loop that needs 16 frames of 192 pays for 16.
        side: height and width in pixels.

    Returns:
        uint8 array `[frames, side, side, 3]`, RGB.
    """
    frame_ids = range(clip.total_frames) if indices is None else indices
    frames = np.empty((len(frame_ids), side, side, 3), dtype=np.uint8)
    before = None
    for slot, index in enumerate(frame_ids):
        scene, moment = clip.locate(int(index))
        view = scene, centre(scene, moment)
        if view == before:  # at rest, as in most frames of a long scene
            frames[slot] = frames[slot - 1]
        else:
            draw(*view, frames[slot])
        before = view
    return frames


def draw(scene: Scene, at: tuple[float, float], frame: np.ndarray) -> None:
    """Paint a scene with its shape centred at `at` (x, y shares) into `frame` [side, side, 3]."""
    side = frame.shape[0]
    frame[:] = BACKGROUNDS[scene.background]
    x, y, radius = at[0] * side, at[1] * side, scene.radius * side
    # Only the window around the shape is worth the arithmetic.
    reach = outlines.REACH * radius + 2
    left, top = (max(int(value - reach), 0) for value in (x, y))
    right, bottom = (min(int(value + reach) + 1, side) for value in (x, y))
    xs = np.arange(left, right, dtype=np.float32) + 0.5 - x
    ys = np.arange(top, bottom, dtype=np.float32) + 0.5 - y
    inside = -outlines.distance(scene.shape, xs[None, :], ys[:, None], radius)  # [h, w] pixels
    cover = np.clip(inside + 0.5, 0, 1)[..., None]
    fill = np.clip(inside - 0.1 * radius + 0.5, 0, 1)[..., None]
    window = frame[top:bottom, left:right].astype(np.float32)
    colour, outline = (np.array(rgb, np.float32) for rgb in (COLOURS[scene.colour], OUTLINE_RGB))
    paint = fill * colour + (1 - fill) * outline
    frame[top:bottom, left:right] = (cover * paint + (1 - cover) * window + 0.5).astype(np.uint8)
