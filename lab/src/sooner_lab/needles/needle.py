"""A needle: a picture, a short clip or a sentence, with a question about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sooner.checks import check_choice
from sooner.errors import SoonerError, did_you_mean
from sooner.tasks.frames import read
from sooner.tasks.identity import VIDEOS
from sooner.tasks.video import probe

from ..worlds.video import words, world
from .haystack import Cut, show
from .sources import Pictures

Medium = Literal["image", "text"]
MEDIA = ("image", "text")
ASKS: dict[str, str] = {
    "colour": "what colour is the {shape} ?",
    "background": "on what background is the {shape} ?",
    "caption": words.PROMPT,
}
"""Questions about a needle from the world; `caption` asks for all scenes, the needle's among
them."""
CHOICES = 4


@dataclass(frozen=True)
class Needle:
    """One needle.

    Attributes:
        id: what it is called in records.
        medium: `image` or `text`.
        question: about the needle alone.
        answer: the exact answer; one of `options` where there are any.
        options: what a multiple-choice question offers, in order.
        frames: of an image needle, uint8 `[frames, height, width, 3]`.
        text: of a text needle, its sentence.
        scene: of a needle from the world, what it shows.
        ask: of a needle from the world, a key of `ASKS`.
    """

    id: str
    medium: Medium
    question: str
    answer: str
    options: tuple[str, ...] = ()
    frames: np.ndarray | None = None
    text: str | None = None
    scene: world.Scene | None = None
    ask: str | None = None


def shape_needle(
    rng: np.random.Generator,
    medium: Medium = "image",
    *,
    ask: str = "colour",
    frames: int = 1,
    side: int = 112,
) -> Needle:
    """A scene of the miniature's world whose shape nothing else in the haystack has.

    A scene of a single frame, or told in a sentence, keeps its shape at rest.

    Args:
        ask: a key of `ASKS`; `caption` needs an image.
        frames: of the needle.
        side: height and width in pixels.

    Raises:
        SoonerError: an unknown medium or question, or one that does not fit.
    """
    check_choice("needle medium", medium, MEDIA)
    check_choice("needle question", ask, ASKS)
    if ask == "caption" and medium == "text":
        raise SoonerError("ask='caption' needs a needle that is shown; use ask='colour'")
    scene = world.sample_scene(rng)
    if medium == "text" or frames == 1:
        scene = world.still(scene)
    answer, options = _asked(rng, scene, ask)
    pixels = np.empty((frames, side, side, 3), np.uint8)
    show(scene, pixels)
    return Needle(
        id=f"{scene.colour}-{scene.shape}",
        medium=medium,
        question=ASKS[ask].format(shape=scene.shape),
        answer=answer,
        options=options,
        frames=pixels if medium == "image" else None,
        text=tell(scene) if medium == "text" else None,
        scene=scene,
        ask=ask,
    )


def _asked(rng: np.random.Generator, scene: world.Scene, ask: str) -> tuple[str, tuple[str, ...]]:
    """The answer, and the options in seeded order; a caption has none."""
    if ask == "caption":
        return tell(scene), ()
    answer = getattr(scene, ask)
    known = world.COLOURS if ask == "colour" else world.BACKGROUNDS
    others = rng.permutation([name for name in known if name != answer])[: CHOICES - 1]
    return answer, tuple(map(str, rng.permutation([answer, *others])))


def tell(scene: world.Scene) -> str:
    """The world's sentence about a scene, without its number."""
    return world.describe(scene, 0).partition(" : ")[2]


def tells(text: str, scene: world.Scene) -> bool:
    """Whether a caption has the scene's shape, colour and background right, in some scene."""
    wanted = {name: getattr(scene, name) for name in ("shape", "colour", "background")}
    return any(wanted.items() <= claim.items() for claim in world.parse(text).values())


COLUMNS = ("id", "image", "clip", "text", "question", "answer", "options")
"""Keys of a needle in a file; one of `image`, `clip` and `text` says what is hidden."""


def load_needles(path: Path | str) -> list[Needle]:
    """Needles of a JSON file: a list of records, or one record a line.

    A record holds `question`, `answer`, and one of `image` (a file), `clip` (a video file, shown
    whole) and `text`; `options` and `id` if wanted. Files are looked up beside the JSON file.

    Raises:
        SoonerError: not such a file; names the record and what is wrong with it.
    """
    path = Path(path)
    records = _records(path)
    if not records:
        raise SoonerError(f"'{path}' holds no needles; give a JSON list of records")
    return [_needle(path, number, record) for number, record in enumerate(records)]


def _records(path: Path) -> Sequence[Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if text.lstrip().startswith("["):
            return json.loads(text)
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise SoonerError(f"needles '{path}' can't be read as JSON ({error})") from error


def _needle(path: Path, number: int, record: Any) -> Needle:
    where = f"'{path}', needle {number}"
    if not isinstance(record, Mapping):
        raise SoonerError(f"{where} is no record; give an object with {', '.join(COLUMNS)}")
    for key in record:
        if key not in COLUMNS:
            raise SoonerError(f"{where} has an unknown key '{key}'{did_you_mean(key, COLUMNS)}")
    hidden = [key for key in ("image", "clip", "text") if record.get(key)]
    if len(hidden) != 1 or not record.get("question") or not record.get("answer"):
        raise SoonerError(f"{where} needs a question, an answer, and one of image, clip and text")
    answer, options = str(record["answer"]), tuple(map(str, record.get("options") or ()))
    if options and answer not in options:
        raise SoonerError(f"{where}: the answer '{answer}' is not among its options")
    is_text = hidden[0] == "text"
    return Needle(
        id=str(record.get("id", number)),
        medium="text" if is_text else "image",
        question=str(record["question"]),
        answer=answer,
        options=options,
        frames=None if is_text else _frames(path.parent / record[hidden[0]]),
        text=str(record["text"]) if is_text else None,
    )


def _frames(path: Path) -> np.ndarray:
    if path.suffix.lower() in VIDEOS:
        return read(probe(path), lambda known: range(known.frames)).pixels
    source = Pictures([path])
    return source.frames(1, Cut(at=0), np.random.default_rng(0))
