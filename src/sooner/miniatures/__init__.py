"""The bundled tiny models: each has a world, a training recipe, weights and a sample.

    >>> from sooner import miniatures
    >>> video = miniatures.find("video")
    >>> video.target, video.draft, video.sample, video.prompt

Importing this is cheap: no torch until a miniature's own modules are imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sooner.errors import unknown


@dataclass(frozen=True)
class Miniature:
    """What ships of one miniature.

    Attributes:
        name: what `find` knows it by.
        target: checkpoint folder of the model to accelerate.
        draft: checkpoint folder of the small model of the same family.
        sample: a bundled input file.
        prompt: the prompt that it was trained on.
    """

    name: str
    target: Path
    draft: Path
    sample: Path
    prompt: str


_HOME = Path(__file__).parent
_SAMPLES = {"video": ("sample.mp4", "describe the scenes in order .")}


def names() -> list[str]:
    """The miniatures that ship, in alphabetical order."""
    return sorted(_SAMPLES)


def find(name: str) -> Miniature:
    """The bundled miniature `name`; a `SoonerError` (a ValueError) names the known ones."""
    if name not in _SAMPLES:
        raise unknown("miniature", name, _SAMPLES)
    sample, prompt = _SAMPLES[name]
    home = _HOME / name
    weights = home / "weights"
    return Miniature(name, weights / "target", weights / "draft", home / sample, prompt)
