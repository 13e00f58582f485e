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

MADE_UP = "knows its own made-up world alone; what it says of anything else means nothing"
"""Of every miniature."""


@dataclass(frozen=True)
class Miniature:
    """What ships of one miniature.

    Attributes:
        name: what `find` knows it by.
        target: checkpoint folder of the model to accelerate.
        sample: a bundled input file; `None` where the input is a prompt.
        prompt: a prompt of the kind that it was trained on; empty where it takes none.
        draft: checkpoint folder of the small model of the same family, if it has one.
        head: folder of an EAGLE draft head that was trained for the target, if it has one.
        tokenizer: folder of what turns frames into codes, if that is a model of its own.
        judge: folder of the small network that names what is in its pictures, if it has one.
        places: simulated environments that it learnt to act in, if it acts.
    """

    name: str
    target: Path
    sample: Path | None
    prompt: str
    draft: Path | None = None
    head: Path | None = None
    tokenizer: Path | None = None
    judge: Path | None = None
    places: tuple[str, ...] = ()

    def foreign(self, *given: Path | str) -> list[str]:
        """A line to be told with a result, if anything of `given` is none of its own samples.

        Args:
            given: a file, which is its own if it has the sample's content; or a text, which is
                its own if it is the prompt or one of the places.
        """
        if all(self._is_own(one) for one in given):
            return []
        return [f"the bundled {self.name} miniature {MADE_UP}; name a model with --model"]

    def _is_own(self, given: Path | str) -> bool:
        if isinstance(given, str):
            return given.split() == self.prompt.split() or given in self.places
        try:
            if self.sample is None or given.stat().st_size != self.sample.stat().st_size:
                return False
            return given.read_bytes() == self.sample.read_bytes()
        except OSError:
            return False

    @property
    def parts(self) -> dict[str, Path]:
        """The files that tell whether each part is here."""
        folders = {
            "target": self.target,
            "draft": self.draft,
            "head": self.head,
            "tokenizer": self.tokenizer,
            "judge": self.judge,
        }
        found = {
            part: folder / "config.json" for part, folder in folders.items() if folder is not None
        }
        return found if self.sample is None else {**found, "sample": self.sample}


_HOME = Path(__file__).parent


def _ships(
    name: str,
    sample: str | None,
    prompt: str = "",
    places: tuple[str, ...] = (),
    **folders: str,
) -> tuple[str, Miniature]:
    home = _HOME / name
    weights = {part: home / "weights" / folder for part, folder in folders.items()}
    return name, Miniature(
        name=name,
        target=home / "weights" / "target",
        sample=None if sample is None else home / sample,
        prompt=prompt,
        places=places,
        **weights,
    )


ROBOT_PLACES = ("reach", "push", "drawer-open", "table")
_ALL = dict(
    (
        _ships("document", "sample.png", "read the page", draft="draft"),
        _ships("image", None, "a red circle left of a blue square on green", judge="classifier"),
        _ships("motion", "sample.mp4", tokenizer="tokenizer", judge="probe"),
        _ships("robot", "sample.png", "reach the red ball", ROBOT_PLACES, head="head"),
        _ships("video", "sample.mp4", "describe the scenes in order .", draft="draft"),
    )
)


def names() -> list[str]:
    """The miniatures that ship, in alphabetical order."""
    return sorted(_ALL)


def find(name: str) -> Miniature:
    """The bundled miniature `name`; a `SoonerError` (a ValueError) names the known ones."""
    if name not in _ALL:
        raise unknown("miniature", name, _ALL)
    return _ALL[name]
