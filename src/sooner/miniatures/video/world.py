"""The moving-shapes world: what the video miniature is trained on and measured against.

A clip is a row of scenes. In each scene one outlined shape rests at its start cell on a 3x3
grid, moves, and rests at its end cell; the caption names all of it in scene order. Everything
is drawn from one `numpy.random.Generator`, so a seed is a clip and its one right answer.

Time: a scene takes `SCENE_FRAMES` frames at `FPS`. The shape moves in the last part of the first
half only, so two evenly sampled frames a scene (its first and its middle frame) show both cells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
class Clip:
    """Scenes in the order in which they are shown."""

    scenes: tuple[Scene, ...]

    @property
    def total_frames(self) -> int:
        return SCENE_FRAMES * len(self.scenes)


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


def sample_clip(rng: np.random.Generator, scenes: int = 8) -> Clip:
    """Draw a clip of `scenes` scenes (1..`MAX_SCENES`, else ValueError)."""
    if not 1 <= scenes <= MAX_SCENES:
        raise ValueError(f"a clip has 1 to {MAX_SCENES} scenes, not {scenes}")
    drawn: list[Scene] = []
    for _ in range(scenes):
        drawn.append(sample_scene(rng, drawn[-1].background if drawn else None))
    return Clip(tuple(drawn))


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
    return (
        f"scene {NUMBERS[index]} : a {scene.colour} {scene.shape} on a {scene.background} "
        f"background moves from the {cell_name(scene.start)} to the {cell_name(scene.end)} , "
        f"{direction(scene.start, scene.end)} ."
    )


def caption(clip: Clip) -> str:
    """The one right caption of a clip: 22 to 24 words a scene."""
    return " ".join(describe(scene, index) for index, scene in enumerate(clip.scenes))


_CELL = rf"({'|'.join(ROWS)}) ({'|'.join(COLUMNS)})"
_SENTENCE = re.compile(
    rf"scene ({'|'.join(NUMBERS)}) ?: a (\w+) (\w+) on a (\w+) background "
    rf"moves from the {_CELL} to the {_CELL}"
)


def parse(text: str) -> dict[int, dict[str, str | int]]:
    """What a caption claims: `{scene index: {attribute: value}}`; the first claim counts."""
    claims: dict[int, dict[str, str | int]] = {}
    for found in _SENTENCE.finditer(text):
        number, colour, shape, background, *cells = found.groups()
        start = 3 * ROWS.index(cells[0]) + COLUMNS.index(cells[1])
        end = 3 * ROWS.index(cells[2]) + COLUMNS.index(cells[3])
        claim: dict[str, str | int] = {"shape": shape, "colour": colour, "background": background}
        claims.setdefault(NUMBERS.index(number), {**claim, "start": start, "end": end})
    return claims


def score(text: str, clip: Clip) -> dict[str, float]:
    """The share of scenes that `text` has right, 0..1 for each of `ATTRIBUTES`.

    A scene that the text leaves out counts as wrong in every attribute.
    """
    claims = parse(text)
    return {
        name: float(
            np.mean(
                [
                    claims.get(index, {}).get(name) == getattr(scene, name)
                    for index, scene in enumerate(clip.scenes)
                ]
            )
        )
        for name in ATTRIBUTES
    }


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
    clip: Clip, indices: Sequence[int] | np.ndarray | None = None, side: int = SIDE
) -> np.ndarray:
    """Draw frames of a clip.

    Args:
        indices: which frames, 0..`clip.total_frames`-1; None is all of them. Only these are
            drawn, so a training loop that needs 16 frames of 192 pays for 16.
        side: height and width in pixels.

    Returns:
        uint8 array `[frames, side, side, 3]`, RGB.
    """
    wanted = range(clip.total_frames) if indices is None else indices
    frames = np.empty((len(wanted), side, side, 3), dtype=np.uint8)
    for slot, index in enumerate(wanted):
        scene = clip.scenes[int(index) // SCENE_FRAMES]
        draw(scene, centre(scene, (int(index) % SCENE_FRAMES) / SCENE_FRAMES), frames[slot])
    return frames


def draw(scene: Scene, at: tuple[float, float], frame: np.ndarray) -> None:
    """Paint a scene with its shape centred at `at` (x, y shares) into `frame` [side, side, 3]."""
    side = frame.shape[0]
    frame[:] = BACKGROUNDS[scene.background]
    x, y, radius = at[0] * side, at[1] * side, scene.radius * side
    # Only the window around the shape is worth the arithmetic.
    reach = REACH * radius + 2
    left, top = (max(int(value - reach), 0) for value in (x, y))
    right, bottom = (min(int(value + reach) + 1, side) for value in (x, y))
    xs = np.arange(left, right, dtype=np.float32) + 0.5 - x
    ys = np.arange(top, bottom, dtype=np.float32) + 0.5 - y
    inside = -_distance(scene.shape, xs[None, :], ys[:, None], radius)  # [h, w] pixels
    cover = np.clip(inside + 0.5, 0, 1)[..., None]
    fill = np.clip(inside - 0.1 * radius + 0.5, 0, 1)[..., None]
    window = frame[top:bottom, left:right].astype(np.float32)
    colour, outline = (np.array(rgb, np.float32) for rgb in (COLOURS[scene.colour], OUTLINE_RGB))
    paint = fill * colour + (1 - fill) * outline
    frame[top:bottom, left:right] = (cover * paint + (1 - cover) * window + 0.5).astype(np.uint8)


def _distance(shape: str, xs: np.ndarray, ys: np.ndarray, radius: float) -> np.ndarray:
    """Signed distance in pixels from the shape's edge, negative inside: [h, w]."""
    if shape == "circle":
        return np.hypot(xs, ys) - 0.95 * radius
    corners = CORNERS[shape] * np.float32(radius)
    nearest = np.full(np.broadcast_shapes(xs.shape, ys.shape), np.inf, dtype=np.float32)
    odd = np.zeros(nearest.shape, dtype=bool)
    for (ax, ay), (bx, by) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        ex, ey, px, py = bx - ax, by - ay, xs - ax, ys - ay
        along = np.clip((px * ex + py * ey) / (ex * ex + ey * ey), 0, 1)
        nearest = np.minimum(nearest, (px - ex * along) ** 2 + (py - ey * along) ** 2)
        if ey != 0:  # even-odd rule: count the edges that a ray to the right crosses
            odd ^= ((ay > ys) != (by > ys)) & (px < ex * py / ey)
    return np.where(odd, -1, 1) * np.sqrt(nearest)


def _ring(radii: Sequence[float]) -> np.ndarray:
    """Corners at even angles, the first on top: [corners, 2] in units of the shape's radius."""
    angles = 2 * np.pi * np.arange(len(radii)) / len(radii)
    return np.stack([np.sin(angles), -np.cos(angles)], axis=1) * np.asarray(radii)[:, None]


REACH = 1.15  # no shape's edge is further from its centre along x or y, in radii
_ARM = 0.34
CORNERS: dict[str, np.ndarray] = {
    "square": np.array([(-0.95, -0.95), (0.95, -0.95), (0.95, 0.95), (-0.95, 0.95)]),
    "triangle": _ring([1.15] * 3),
    "star": _ring([1.1, 0.42] * 5),
    "cross": np.array(
        [
            (-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM), (1, _ARM), (_ARM, _ARM),
            (_ARM, 1), (-_ARM, 1), (-_ARM, _ARM), (-1, _ARM), (-1, -_ARM), (-_ARM, -_ARM),
        ]
    ),
}  # fmt: skip
