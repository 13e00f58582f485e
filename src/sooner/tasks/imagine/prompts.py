"""Inputs of a batch job: prompts of a text file, clips of a folder, or those of a data set.

Data sets come from other installed distributions; see `sooner.plugins`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ...errors import SoonerError, reason_of, unknown
from ...plugins import LAB, plugins
from ..identity import find


@dataclass(frozen=True)
class ImagePrompt:
    """A prompt that is to be drawn.

    Attributes:
        id: its name.
        text: what is drawn.
    """

    id: str
    text: str


@dataclass(frozen=True)
class StartClip:
    """A clip of which the beginning is given.

    Attributes:
        id: its name.
        video: the file.
        seconds: where in the file the clip begins.
    """

    id: str
    video: Path
    seconds: float = 0.0


def load_prompts(
    name: str | Path, source: str | Path | None = None, limit: int | None = None
) -> list[ImagePrompt]:
    """Returns the prompts of a text file or of a data set.

    Args:
        name: a text file with one prompt a line, or a data set that is installed.
        source: a data set's folder, or another hub id for it.
        limit: at most so many.

    Raises:
        SoonerError: no such file or data set, or nothing in it.
    """
    path = Path(name)
    sets = {known: read for group in plugins("sooner.prompts") for known, read in group.items()}
    if path.is_file():
        result: Iterable[ImagePrompt] = _lines(path)
    elif str(name) in sets:
        result = sets[str(name)](str(name), source)
    elif path.suffix or len(path.parts) > 1:
        raise SoonerError(f"prompt file '{name}' does not exist; check the path")
    elif not sets:
        raise SoonerError(
            f"'{name}' is no file; `pip install {LAB}` brings prompt sets such as coco-captions"
        )
    else:
        raise unknown("prompt set", str(name), sets)
    prompts = list(islice(result, limit))
    if not prompts:
        raise SoonerError(f"'{name}' holds no prompts; give a text file with one prompt a line")
    return prompts


def load_clips(
    source: Path | str, limit: int | None = None, apart: Path | None = None
) -> list[StartClip]:
    """Returns the clips of a file, of a folder of videos, or of a data set's folder.

    Args:
        source: the file or folder.
        limit: at most so many.
        apart: a folder whose videos don't count, since results go there.

    Raises:
        SoonerError: nothing there.
    """
    root = Path(source)
    for read in plugins("sooner.clips") if root.is_dir() else ():
        clips: list[StartClip] | None = read(root, limit)
        if clips is not None:
            return clips
    paths = find([root])
    if apart is not None:
        outside = apart.resolve()
        paths = [path for path in paths if not path.resolve().is_relative_to(outside)]
    return [StartClip(path.stem, path) for path in paths[:limit]]


def _lines(path: Path) -> Iterator[ImagePrompt]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SoonerError(
            f"prompt file '{path}' can't be read as text ({reason_of(error)})"
        ) from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield ImagePrompt(f"{path.name}/{number}", line.strip())
